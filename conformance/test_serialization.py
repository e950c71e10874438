"""SER: loading tensors onto the device that was asked for."""

from __future__ import annotations

import io
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import device_type_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require
from conformance.device_dtypes import dtypes_of
from conformance.programs.bit_patterns import bits_of

_DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)
_FORMS = ("string", "device", "dict", "callable", "callable that leaves it", "bare type", "none")


@clause("SER-1")
@given(
    form=st.sampled_from(_FORMS),
    source=st.sampled_from([0, 1, "cpu"]),
    target=st.sampled_from([0, 1, "cpu"]),
    current=st.integers(0, 1),
    dtype=st.sampled_from(_DTYPES),
    size=st.integers(0, 5),
)
def test_loading_honours_map_location(
    backend: BackendUnderTest, form: str, source: int | str, target: int | str, current: int, dtype: torch.dtype, size: int
) -> None:
    if dtype not in dtypes_of(backend):
        return
    accelerator = backend.accelerator
    current %= int(method(accelerator, "device_count")())
    saved_at, wanted = _location(accelerator, source), _location(accelerator, target)
    host = (torch.arange(size + 3) * 3 - 4).to(dtype)
    whole = host.to(torch.device(saved_at))
    file = io.BytesIO()
    torch.save({"whole": whole, "part": whole[1 : size + 1], "columns": whole[: size // 2 * 2].reshape(2, -1).T}, file)
    file.seek(0)
    method(accelerator, "set_device")(current)
    try:
        loaded = torch.load(file, map_location=_map_location(form, saved_at, wanted, device_type_of(accelerator)))
    finally:
        method(accelerator, "set_device")(0)
    due = {
        "none": saved_at,
        "callable that leaves it": "cpu",
        "bare type": _location(accelerator, current),
    }.get(form, wanted)
    story = f"saved on {saved_at}, loaded with map_location as {form} ({wanted}) while device {current} is current"
    for name, expected in {"whole": host, "part": host[1 : size + 1], "columns": host[: size // 2 * 2].reshape(2, -1).T}.items():
        tensor = loaded[name]
        require(torch.device(_tag(tensor)) == torch.device(due), f"{name}, {story}, is on {tensor.device}; due was {due}")
        back = tensor.cpu()
        require(
            back.dtype == dtype and back.shape == expected.shape and torch.equal(bits_of(back), bits_of(expected)),
            f"{name}, {story}, is {back.tolist()} ({back.dtype}); due was {expected.tolist()} ({dtype})",
        )
    loaded["whole"].zero_()
    require(not loaded["part"].any().item(), f"a part, {story}, no longer shares the memory of the whole")


# PyTorch has no types for it.
_restore: Any = torch.serialization.default_restore_location


def _map_location(form: str, saved_at: str, wanted: str, device_type: str) -> Any:
    forms: dict[str, Any] = {
        "string": wanted,
        # A type with one device may have no index.
        "device": torch.device(wanted),
        "dict": {saved_at: wanted, "nowhere:0": "cpu"},
        "callable": lambda storage, _location: _restore(storage, wanted),
        "callable that leaves it": lambda storage, _location: storage,
        "bare type": device_type,
        "none": None,
    }
    return forms[form]


def _location(accelerator: Any, place: int | str) -> str:
    """How PyTorch writes a place into a file."""
    if isinstance(place, str):
        return place
    device = method(accelerator, "device")(place % int(method(accelerator, "device_count")()))
    return _tag(torch.empty(1, device=device))


def _tag(tensor: torch.Tensor) -> str:
    tag: str = torch.serialization.location_tag(tensor.untyped_storage())
    return tag


@clause("SER-1")
@given(
    form=st.sampled_from(["string", "device", "dict", "callable"]),
    past=st.sampled_from([0, 1, 5, 60]),
    source=st.sampled_from([0, "cpu"]),
)
def test_loading_onto_an_absent_device_is_refused(backend: BackendUnderTest, form: str, past: int, source: int | str) -> None:
    accelerator = backend.accelerator
    count = int(method(accelerator, "device_count")())
    saved_at = _location(accelerator, source)
    absent = f"{device_type_of(accelerator)}:{count + past}"
    file = io.BytesIO()
    torch.save(torch.arange(4).to(torch.device(saved_at)), file)
    file.seek(0)

    def load() -> str:
        return f"a tensor on {torch.load(file, map_location=_map_location(form, saved_at, absent, '')).device}"

    load.__qualname__ = f"torch.load of a tensor saved on {saved_at}, with map_location as {form} ({absent})"
    expect_refusal(load, errors=(RuntimeError, AssertionError, ValueError))
