"""Logical backend names on any accelerator."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from harness.accelerator import default
from harness.accelerator.cuda import CUDAAccelerator
from harness.accelerator.generic import GenericAccelerator
from harness.accelerator.musa import MUSAAccelerator
from harness.accelerator.npu import NPUAccelerator
from harness.accelerator.xpu import XPUAccelerator
from harness.errors import BackendSpecError
from harness.process_group import (
    distributed_device_id,
    init_process_group,
    is_accelerator_backend,
    new_group,
    normalize_backend,
    normalizer,
    weight_update_backend,
)

MUSA = MUSAAccelerator()
CUDA = CUDAAccelerator()


@pytest.fixture
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "initialize_accelerator", lambda: None)


@pytest.fixture
def selected_musa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "initialize_accelerator", lambda: MUSA)


@pytest.fixture
def transport() -> Iterator[str]:
    """A transport that is registered with PyTorch for MUSA while the test runs."""
    before = [dict(dist.Backend.backend_capability), list(dist.Backend.backend_list), dict(dist.Backend.default_device_backend_map)]
    dist.Backend.register_backend("mccl", lambda *_: None, devices=["musa"])
    yield "mccl"
    dist.Backend.backend_capability.clear()
    dist.Backend.backend_capability.update(before[0])
    dist.Backend.backend_list[:] = before[1]
    dist.Backend.default_device_backend_map.clear()
    dist.Backend.default_device_backend_map.update(before[2])
    dist.Backend._plugins.pop("MCCL")
    dist.Backend.backend_type_map.pop("mccl")
    del dist.Backend.MCCL  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["nccl", "NCCL", " nccl ", "\tNcCl\n"])
@pytest.mark.parametrize(
    ("accelerator", "name"), [(CUDA, "nccl"), (MUSA, "mccl"), (NPUAccelerator(), "hccl"), (XPUAccelerator(), "xccl")]
)
def test_the_logical_backend_is_the_accelerators_transport(text: str, accelerator: Any, name: str) -> None:
    assert normalize_backend(text, accelerator) == name


def test_on_the_host_itself_the_logical_backend_is_gloo() -> None:
    assert normalize_backend("nccl", GenericAccelerator("cpu")) == "gloo"
    assert normalize_backend("cpu:gloo,cuda:nccl", GenericAccelerator("cpu")) == "cpu:gloo"


@pytest.mark.parametrize(
    "text", ["gloo", "mpi", "ucc", "fake", "undefined", "mccl", "my_nccl_plugin", "ncclx", "cpu:gloo", "cuda:mccl"]
)
def test_anything_else_passes_through_without_selecting_an_accelerator(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "initialize_accelerator", lambda: pytest.fail("an accelerator was selected"))
    assert normalize_backend(text) == text
    assert normalize_backend(text, MUSA) == text


def test_the_selected_accelerator_counts_where_none_is_given(selected_musa: None) -> None:
    assert normalize_backend("cpu:gloo,cuda:nccl") == "cpu:gloo,musa:mccl"
    assert weight_update_backend() == "cpu:gloo,musa:mccl"
    assert distributed_device_id() is None


def test_without_any_accelerator_logical_names_stay(no_accelerator: None) -> None:
    assert normalize_backend("NCCL") == "nccl"
    assert normalize_backend("cpu:gloo,cuda:nccl") == "cpu:gloo,cuda:nccl"
    assert weight_update_backend("NCCL") == "nccl"
    assert distributed_device_id() is None


def test_none_stays_none() -> None:
    assert normalize_backend(None, MUSA) is None


def test_malformed_strings_are_quoted_as_they_were_written() -> None:
    with pytest.raises(BackendSpecError) as refusal:
        normalize_backend("CUDA:nccl,musa:gloo", MUSA)
    assert "CUDA:nccl,musa:gloo" in str(refusal.value)


def test_the_device_of_the_given_accelerator_is_known() -> None:
    class Strange(MUSAAccelerator):
        device_type = "strange"
        communication_backend_name = "sccl"

    assert normalize_backend("cuda:nccl", Strange()) == "strange:sccl"
    assert normalize_backend("strange:sccl", Strange()) == "strange:sccl"
    with pytest.raises(BackendSpecError, match="strange"):
        normalize_backend("strange:sccl", MUSA)


@pytest.mark.parametrize("backend", ["mccl", "NCCL", " hccl ", "xccl", "cncl", "cuda:mccl", "cpu:gloo,musa:mccl", "cuda:gloo"])
def test_accelerator_backends_are_told(backend: str) -> None:
    assert is_accelerator_backend(backend)


@pytest.mark.parametrize("backend", ["gloo", "mpi", "my_nccl_plugin", "xnccl", "ncclx", "cpu:gloo", "cpu:nccl", "undefined"])
def test_other_backends_are_not_accelerator_backends(backend: str) -> None:
    assert not is_accelerator_backend(backend)


def test_a_registered_accelerators_transport_counts() -> None:
    default.register_accelerator("strange", lambda: MUSA, communication_backends=("SCCL",))
    try:
        assert is_accelerator_backend("sccl")
    finally:
        default.unregister_accelerator("strange")
    assert not is_accelerator_backend("sccl")


@pytest.mark.parametrize("backend", ["nccl", "NCCL", " nccl "])
def test_weight_update_groups(backend: str) -> None:
    assert weight_update_backend(backend, MUSA) == "cpu:gloo,musa:mccl"
    assert weight_update_backend(backend, CUDA) == "nccl"


@pytest.mark.parametrize("backend", ["gloo", "mccl", "cpu:gloo,musa:mccl"])
def test_weight_update_groups_of_another_backend_pass_through(backend: str) -> None:
    assert weight_update_backend(backend, MUSA) == backend


def test_a_composite_for_weight_updates_is_mapped_entry_by_entry() -> None:
    assert weight_update_backend("cpu:gloo,cuda:nccl", MUSA) == "cpu:gloo,musa:mccl"


def test_the_device_id_is_a_device_where_the_transport_takes_one() -> None:
    class OneDevice(CUDAAccelerator):
        def device_count(self) -> int:
            return 1

    assert distributed_device_id(0, OneDevice()) == torch.device("cuda", 0)
    assert distributed_device_id(0, MUSA) is None


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        (([0], None, "nccl"), {}),
        (([0],), {"backend": "nccl"}),
        ((), {"ranks": [0], "backend": "nccl", "group_desc": "mine"}),
    ],
)
def test_new_group_normalises_where_the_backend_stands(
    arguments: tuple[Any, ...], keywords: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[inspect.BoundArguments] = []
    signature = inspect.signature(dist.new_group)

    def spy(*given: Any, **named: Any) -> str:
        calls.append(signature.bind(*given, **named))
        assert len(given) == len(arguments)
        return "group"

    spy.__signature__ = signature  # type: ignore[attr-defined]
    monkeypatch.setattr(dist, "new_group", spy)
    assert new_group(*arguments, accelerator=MUSA, **keywords) == "group"
    assert calls[0].arguments == {**signature.bind(*arguments, **keywords).arguments, "backend": "mccl"}


def test_init_process_group_normalises_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def spy(backend: str | None = None, **named: Any) -> None:
        calls.append((backend, named))

    monkeypatch.setattr(dist, "init_process_group", spy)
    init_process_group("cpu:gloo,cuda:nccl", accelerator=MUSA, rank=0)
    init_process_group(backend="nccl", accelerator=MUSA)
    init_process_group(accelerator=MUSA)
    assert calls == [("cpu:gloo,musa:mccl", {"rank": 0}), ("mccl", {}), (None, {})]


def test_a_call_that_pytorch_refuses_is_left_to_pytorch() -> None:
    with pytest.raises(TypeError, match="backend"):
        new_group([0], None, "gloo", backend="gloo")


def test_a_function_that_shows_no_parameter_still_takes_the_keyword() -> None:
    def opaque(*arguments: Any, **keywords: Any) -> None: ...

    assert normalizer.backend_position(opaque) is None
    assert normalizer.with_normalized_backend(opaque, ("nccl",), {"backend": "nccl"}, MUSA) == (("nccl",), {"backend": "mccl"})


def test_pytorch_reads_the_result_as_meant(transport: str) -> None:
    config = dist.distributed_c10d.BackendConfig
    assert config(dist.Backend(normalize_backend("nccl", MUSA))).get_device_backend_map() == {"musa": "mccl"}
    assert config(dist.Backend(normalize_backend("CPU:gloo, cuda:NCCL", MUSA))).get_device_backend_map() == {
        "cpu": "gloo",
        "musa": "mccl",
    }
