"""VIS: the forms in which a device id is taken or refused, and the two kinds of id."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis import given

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require, unsupported
from conformance.visible_devices_strategies import UNKNOWN_HOST, numbers
from conformance.visible_devices_view import (
    REFUSALS,
    View,
    answer,
    largest_list,
    listing_variable,
    said,
    takes_hosts,
    vendor_of,
    vendor_or_none,
    view,
)
from harness.accelerator.visible_devices import LocalDeviceId, PhysicalDeviceId

_OTHER_CLASS = "an adapter that does not inherit the contract's class need not know its id types"


class _Index:
    """Anything with `__index__`."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def _forms(number: int) -> list[Any]:
    forms: list[Any] = [str(number), f" {number} ", f"{number}\n", float(number), _Index(number), torch.tensor(number)]
    forms += [torch.tensor(number, dtype=torch.int32).numpy()[()]] if _has_numpy() else []
    return forms


def _has_numpy() -> bool:
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def _id_views(backend: BackendUnderTest) -> list[View]:
    """A list, and no variable; the latter alone where the device has none."""
    unset = View(vendor_or_none(backend), UNKNOWN_HOST, {}, backend)
    if not unset.vendor:
        return [unset]
    most = largest_list(backend)
    value = ",".join(map(str, range(most // 2, most)))
    return [unset, View(unset.vendor, UNKNOWN_HOST, {listing_variable(unset.vendor): value}, backend)]


@clause("VIS-6", examples=0.4)
@given(number=st.integers(0, 20))
def test_every_form_of_a_number_is_the_same_id(backend: BackendUnderTest, number: int) -> None:
    for asked in _id_views(backend):
        due = answer(asked, number)
        for form in _forms(number):
            came = answer(asked, form)
            require(came == due, f"{asked}: {form!r} gave {said(came)}, but {number} gives {said(due)}; they are the same id")


@clause("VIS-6", "VIS-14", examples=0.3)
@given(number=st.integers(0, 20))
def test_the_two_id_types_are_taken(backend: BackendUnderTest, number: int) -> None:
    if not takes_hosts(backend):
        unsupported(_OTHER_CLASS)
    for asked in _id_views(backend):
        listed = [int(entry) for value in asked.environment.values() for entry in value.split(",")]
        if not listed or number in listed:
            due = answer(asked, number)
            came = answer(asked, PhysicalDeviceId(number))
            require(came == due, f"{asked}: {PhysicalDeviceId(number)} gave {said(came)}, but {number} gives {said(due)}")


_NOT_IDS: list[Any] = [
    True,
    False,
    None,
    1.5,
    0.5,
    1e-9,
    -1,
    "-1",
    -1.0,
    float("nan"),
    float("inf"),
    float("-inf"),
    [0],
    (0,),
    {0: 0},
    b"0",
]
_NOT_IDS += [
    0j,
    "",
    " ",
    "x",
    "1.5",
    "nan",
    "inf",
    "1e400",
    "٣",
    "0x1",
    "1,2",
    10**400,
    -(10**400),
    "9" * 5000,
    object,
    torch.tensor([0, 1]),
]


@clause("VIS-6")
@given(
    bad=st.sampled_from(_NOT_IDS)
    | st.floats().filter(lambda value: not (value >= 0 and value.is_integer()))
    | st.integers(max_value=-1)
)
def test_what_is_no_id_is_refused_and_quoted(backend: BackendUnderTest, bad: Any) -> None:
    for asked in _id_views(backend):
        refusal = expect_refusal(asked.resolve, bad, errors=REFUSALS)
        shown_value = repr(bad) if isinstance(bad, (bool, type(None), float, bytes)) else str(bad)[:20]
        if not isinstance(bad, (torch.Tensor, list, dict, tuple)):
            require(shown_value.strip() in str(refusal), f"{asked}: the refusal of {bad!r} does not quote it: {refusal}")


@clause("VIS-14", examples=0.4)
@given(data=st.data())
def test_a_local_id_is_never_mapped_again(backend: BackendUnderTest, data: st.DataObject) -> None:
    vendor, most = vendor_of(backend), largest_list(backend)
    listed = data.draw(numbers(most, least=1))
    if vendor in ("npu", "xpu"):
        listed = sorted(listed)
    asked = view(backend, UNKNOWN_HOST, {listing_variable(vendor): ",".join(map(str, listed))})
    for number in listed:
        once = asked.resolve(number)
        twice = asked.resolve(once)
        require(twice == once, f"{asked}: {number} is local id {once}; resolving that again gave {twice!r}: it was mapped twice")
        # Adapters of other classes may have an id type of their own.
        require(
            isinstance(once, LocalDeviceId) or not takes_hosts(backend),
            f"{asked}: {number} resolved to {once!r}, which does not say that it is a local id",
        )
    if takes_hosts(backend):
        expect_refusal(asked.resolve, LocalDeviceId(len(listed)), errors=REFUSALS)
    require(
        not isinstance(PhysicalDeviceId(0), LocalDeviceId) and not isinstance(PhysicalDeviceId(0), int), "the id types are one type"
    )
