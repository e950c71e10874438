"""The current device, forms of devices, contexts, threads, forks, and torch.accelerator in agreement."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable

import pytest
import torch

import fakes

pytestmark = pytest.mark.usefixtures("simulated_machine")


@pytest.mark.parametrize("form", [1, "musa:1", torch.device("cpu"), "musa"])
def test_devices_can_be_named_in_every_form(form: object) -> None:
    if form == torch.device("cpu"):
        for function in (torch.musa.set_device, torch.musa.get_device_properties, torch.musa.synchronize, torch.musa.device):
            with pytest.raises(ValueError, match="Expected a musa device, but got: cpu"):
                function(form)
        return
    torch.musa.set_device(1)
    tensor = torch.empty(2, device=form)
    assert tensor.device == torch.device("musa", 1)
    assert torch.zeros(2).to(form).device == tensor.device
    assert torch.musa.current_stream(form).device == tensor.device
    assert torch.musa.memory_allocated(form) == torch.musa.memory_allocated(1)


def test_a_bare_type_means_the_current_device_everywhere() -> None:
    def devices() -> set[torch.device]:
        cpu = torch.zeros(2)
        made = [
            torch.empty(2, device="musa"),
            torch.tensor([1], device="musa"),
            torch.as_tensor([1.0], device=torch.device("musa")),
            torch.arange(3, device="musa"),
            torch.randperm(3, device="musa"),
            torch.eye(2, device="musa"),
            torch.tril_indices(2, 2, device="musa"),
            cpu.to("musa"),
            cpu.to(device="musa", dtype=torch.half),
            cpu.to(torch.device("musa")),
            cpu.musa(),
            cpu.new_tensor([1], device="musa"),
            cpu.new_zeros(2, device="musa"),
            torch.zeros_like(cpu, device="musa"),
            torch.nn.Linear(1, 1).to("musa").weight,
            torch.nn.Linear(1, 1, device="musa").weight,
            torch.empty(2, device="musa:0").to("musa"),
        ]
        with torch.device("musa"):
            made += [torch.zeros(2), torch.tensor([1.0])]
        return {tensor.device for tensor in made}

    assert devices() == {torch.device("musa:0")}
    with torch.musa.device(1):
        assert devices() == {torch.device("musa:1")}


@pytest.mark.parametrize("index", [2, 100])
def test_absent_devices_are_refused(index: int) -> None:
    torch.musa.set_device(1)
    for use in (
        lambda: torch.musa.set_device(index),
        lambda: torch.empty(1, device=f"musa:{index}"),
        lambda: torch.zeros(1).to(f"musa:{index}"),
        lambda: torch.musa.memory_allocated(index),
        lambda: torch.musa.current_stream(index),
        lambda: torch.musa.Stream(index),
        lambda: torch.musa.get_rng_state(index),
        lambda: torch.accelerator.set_device_index(index),
    ):
        with pytest.raises(RuntimeError, match=f"invalid device ordinal {index}"):
            use()
    assert torch.musa.current_device() == 1


def test_device_contexts_restore_nest_and_survive_exceptions() -> None:
    with torch.musa.device(1):
        with pytest.raises(KeyError), torch.musa.device(0):
            torch.musa.set_device(1)
            raise KeyError
        assert torch.musa.current_device() == 1
        with torch.musa.device_of(torch.empty(1, device="musa:0")):
            assert torch.musa.current_device() == 0
        with torch.musa.device_of(torch.empty(1)), torch.musa.device(None), torch.musa.device(-1):
            assert torch.musa.current_device() == 1
    assert torch.musa.current_device() == 0


def test_the_accelerator_agrees() -> None:
    accelerator = torch.accelerator
    assert accelerator.current_accelerator() == torch.device("musa")
    assert accelerator.is_available()
    assert accelerator.device_count() == 2
    torch.musa.set_device(1)
    assert accelerator.current_device_index() == 1
    accelerator.set_device_index("musa:0")
    assert torch.musa.current_device() == 0
    with accelerator.device_index(1):
        assert torch.musa.current_device() == 1
        assert torch.zeros(1, device=accelerator.current_accelerator()).device.index == 1
    assert torch.musa.current_device() == 0
    stream = torch.musa.Stream(1)
    accelerator.set_stream(stream)
    assert accelerator.current_device_index() == 1
    assert accelerator.current_stream() == torch.musa.current_stream() == stream
    assert accelerator.current_stream(torch.device("musa:0")) == torch.musa.default_stream(0)
    held = torch.ones(1000, device="musa:1")
    assert accelerator.memory_allocated(1) == torch.musa.memory_allocated(1) > 0
    assert accelerator.max_memory_reserved() == torch.musa.max_memory_reserved()
    assert accelerator.get_memory_info(1) == torch.musa.mem_get_info(1)
    accelerator.reset_peak_memory_stats()
    accelerator.synchronize()
    accelerator.empty_cache()
    assert torch.bfloat16 in accelerator.get_device_capability()["supported_dtypes"]
    del held


def test_questions_open_no_context(simulated_machine: fakes.Machine) -> None:
    torch.musa.device_count()
    torch.musa.is_available()
    torch.musa.memory_allocated(1)
    torch.musa.memory_stats(1)
    torch.musa.reset_peak_memory_stats()
    torch.musa.empty_cache()
    torch.musa.manual_seed_all(3)
    assert not torch.musa.is_initialized()
    torch.musa.current_device()
    torch.musa.set_device(1)
    torch.musa.get_device_properties(0)
    torch.musa.current_stream(0)
    torch.musa.get_rng_state(0)
    assert simulated_machine.open_contexts == ()
    torch.zeros(1, device="musa:1")
    torch.musa.empty_cache()
    assert simulated_machine.open_contexts == (1,)
    torch.musa.mem_get_info(0)
    assert simulated_machine.open_contexts == (0, 1)


def in_thread(work: Callable[[], object]) -> object:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def test_device_and_stream_belong_to_the_thread() -> None:
    torch.musa.set_device(1)
    stream = torch.musa.Stream()
    with torch.musa.stream(stream):

        def other() -> tuple[int, bool]:
            first = torch.musa.current_device()
            torch.musa.set_device(0)
            return first, torch.musa.current_stream(1) == torch.musa.default_stream(1)

        assert in_thread(other) == (0, True)
        assert torch.musa.current_device() == 1
        assert torch.musa.current_stream() == stream


def test_backward_runs_in_the_callers_thread_on_its_device() -> None:
    seen = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen.append((threading.get_ident(), torch.musa.current_device(), torch.musa.current_stream()))
            return gradient

    def work() -> None:
        torch.musa.set_device(1)
        stream = torch.musa.Stream()
        with torch.musa.stream(stream):
            Probe.apply(torch.ones(2, device="musa", requires_grad=True)).sum().backward()
            assert seen[-1] == (threading.get_ident(), 1, stream)

    work()
    in_thread(work)


def test_threads_compute_independently() -> None:
    def work(index: int) -> None:
        torch.musa.set_device(index % 2)
        for _ in range(50):
            tensor = torch.full((64,), float(index), device="musa")
            results[index] = (tensor * 2 + tensor).sum().item()

    results = [0.0] * 4
    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [0.0, 192.0, 384.0, 576.0]
    assert [torch.musa.memory_allocated(index) for index in range(2)] == [0, 0]


def test_no_profiler_of_the_device_is_claimed() -> None:
    """PyTorch claims one for any device with a name of its own."""
    assert torch.profiler.supported_activities() == {torch.profiler.ProfilerActivity.CPU}  # type: ignore[no-untyped-call]


def child_outcome(work: Callable[[], object]) -> str:
    """What `work` returns or raises in a forked child, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = repr(work())
        except BaseException as error:  # noqa: BLE001 - told to the parent
            text = "".join(traceback.format_exception_only(error))
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return text


def fork_state() -> tuple[bool, bool]:
    return torch.musa._is_in_bad_fork(), torch.musa.is_initialized()


def test_a_child_forked_after_initialisation_is_refused_naming_spawn() -> None:
    tensor = torch.ones(2, device="musa")
    for use in (
        lambda: torch.ones(2, device="musa"),
        lambda: tensor + 1,
        tensor.cpu,
        torch.musa.current_device,
        torch.musa.synchronize,
        lambda: torch.musa.set_device(1),
    ):
        assert "Cannot re-initialize MUSA in forked subprocess" in child_outcome(use)
        assert "'spawn'" in child_outcome(use)
    assert child_outcome(fork_state) == "(True, False)"
    assert (tensor + 1).tolist() == [2.0, 2.0]


def test_a_child_forked_before_initialisation_works() -> None:
    assert torch.musa.device_count() == 2
    assert child_outcome(lambda: [value + 1 for value in torch.ones(2, device="musa:1").tolist()]) == "[2.0, 2.0]"
    assert not torch.musa.is_initialized()
