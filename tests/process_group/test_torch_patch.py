"""The explicit patch of torch.distributed."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from rank_worlds import run_ranks, values
from torch.distributed import device_mesh, distributed_c10d

from conformance.children import ChildProcesses
from harness.accelerator.musa import MUSAAccelerator
from harness.accelerator.npu import NPUAccelerator
from harness.process_group import patched_torch_distributed, torch_patch

MUSA = MUSAAccelerator()
PLACES = [(module, name) for module in (dist, distributed_c10d, device_mesh) for name in torch_patch.PATCHED_FUNCTIONS]


def current() -> list[Any]:
    return [vars(module).get(name) for module, name in PLACES]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The backends that reach PyTorch's functions, which are replaced by spies for the test."""
    seen: list[Any] = []

    def init_process_group(backend: Any = None, **_: Any) -> None:
        seen.append(backend)

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None) -> None:
        seen.append(backend)

    for spy in (init_process_group, new_group):
        for module in (dist, distributed_c10d, device_mesh):
            monkeypatch.setattr(module, spy.__name__, spy, raising=False)
    before = current()
    yield seen
    assert current() == before
    assert not torch_patch.is_installed()


def test_inside_the_context_calls_are_normalised_and_afterwards_the_same_objects_are_back(calls: list[Any]) -> None:
    before = current()
    with patched_torch_distributed(MUSA):
        assert torch_patch.is_installed()
        dist.new_group([0], None, "nccl")
        dist.new_group(backend="cpu:gloo,cuda:nccl")
        distributed_c10d.new_group(backend="NCCL")
        device_mesh.new_group(backend="nccl")
        dist.init_process_group("nccl")
        dist.init_process_group(backend=None)
    assert calls == ["mccl", "cpu:gloo,musa:mccl", "mccl", "mccl", "mccl", None]
    assert all(now is then for now, then in zip(current(), before, strict=True))
    dist.new_group(backend="nccl")
    assert calls[-1] == "nccl"


def test_an_exception_inside_leaves_nothing_patched(calls: list[Any]) -> None:
    before = current()
    with pytest.raises(KeyError), patched_torch_distributed(MUSA):
        raise KeyError("inside")
    assert current() == before


def test_contexts_nest_and_the_innermost_accelerator_counts(calls: list[Any]) -> None:
    with patched_torch_distributed(MUSA):
        outer = current()
        with patched_torch_distributed(NPUAccelerator()):
            assert current() == outer
            dist.new_group(backend="nccl")
        dist.new_group(backend="nccl")
    assert calls == ["hccl", "mccl"]


def test_installing_twice_is_once(calls: list[Any]) -> None:
    before = current()
    torch_patch.install(MUSA)
    installed = current()
    torch_patch.install(NPUAccelerator())
    assert current() == installed
    dist.new_group(backend="nccl")
    torch_patch.uninstall()
    assert current() == before
    torch_patch.uninstall()
    assert calls == ["hccl"]


def test_a_context_inside_an_install_does_not_end_it(calls: list[Any]) -> None:
    torch_patch.install(MUSA)
    with patched_torch_distributed(NPUAccelerator()):
        torch_patch.install(MUSA)
    dist.new_group(backend="nccl")
    torch_patch.uninstall()
    assert calls == ["mccl"]


def test_uninstalling_inside_a_context_leaves_the_context(calls: list[Any]) -> None:
    torch_patch.install(NPUAccelerator())
    with patched_torch_distributed(MUSA):
        torch_patch.uninstall()
        dist.new_group(backend="nccl")
    assert calls == ["mccl"]


def test_a_later_patch_by_other_code_stays_and_is_told(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = dist.new_group
    with patched_torch_distributed(MUSA):
        ours = dist.new_group

        def theirs(*arguments: Any, **keywords: Any) -> None:
            ours(*arguments, **keywords)

        dist.new_group = theirs
        dist.new_group(backend="nccl")
    assert dist.new_group is theirs
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    dist.new_group(backend="nccl")
    dist.new_group = original
    assert calls == ["mccl", "nccl"]


def test_a_patch_that_fails_half_way_is_undone(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = current()
    monkeypatch.setattr(torch_patch, "PATCHED_FUNCTIONS", ("new_group", "no_such_function"))
    with pytest.raises(AttributeError), patched_torch_distributed(MUSA):
        pytest.fail("the block must not run")
    assert current() == before


def test_releasing_what_is_not_held_does_nothing(calls: list[Any]) -> None:
    torch_patch._PATCH.release(object())
    assert not torch_patch.is_installed()


def test_what_is_not_ours_is_its_own_original() -> None:
    assert torch_patch.pytorchs_own(len) is len


def test_threads_share_one_patch(calls: list[Any]) -> None:
    before = current()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                with patched_torch_distributed(MUSA):
                    assert torch_patch.is_installed()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test reports it
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not errors
    assert current() == before


def test_a_forked_child_is_patched_and_can_uninstall_though_another_thread_held_the_lock(children: ChildProcesses) -> None:
    assert values(run_ranks(children, f"{__name__}:forks_while_a_thread_holds_the_lock", 1)) == [[0, True]]


def forks_while_a_thread_holds_the_lock(rank: int, size: int, folder: Path) -> list[Any]:
    """In a process of its own: what the child's exit status is, and whether the parent is patched still."""
    seen: list[Any] = []
    dist.new_group = lambda ranks=None, timeout=None, backend=None: seen.append(backend)
    before = dist.new_group
    torch_patch.install(MUSA)
    held, done = threading.Event(), threading.Event()

    def hold_lock() -> None:
        with torch_patch._PATCH._lock:
            held.set()
            done.wait(timeout=30)

    thread = threading.Thread(target=hold_lock)
    thread.start()
    held.wait(timeout=30)
    child = os.fork()
    if child == 0:
        dist.new_group(backend="nccl")
        torch_patch.uninstall()
        os._exit(0 if seen == ["mccl"] and dist.new_group is before else 1)
    done.set()
    thread.join(timeout=30)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch_patch.is_installed()]
