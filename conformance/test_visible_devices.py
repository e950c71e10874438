"""VIS: how the adapter resolves device ids under its vendor's visible-devices variables."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, not_checkable, require
from conformance.models.visible_devices import VARIABLES, ModelHost, Shown, resolved, resolved_uuid, shown, text_of
from conformance.visible_devices_strategies import (
    FULL_HOST,
    HIDING,
    UNKNOWN_HOST,
    UUIDS,
    cuda_lists,
    environments,
    hosts,
    numbers,
    uuid_lists,
)
from conformance.visible_devices_view import (
    ALL_VARIABLES,
    REFUSALS,
    View,
    answer,
    cuda_view,
    has_cuda_grammar,
    largest_list,
    listing_variable,
    said,
    takes_hosts,
    vendor_of,
    vendor_or_none,
    view,
)

_MANY = 10**6


def _require_numbers(asked: View, visible: Shown, upto: int) -> None:
    """Every number below `upto` resolves as the model says."""
    for number in range(upto):
        due, came = resolved(visible, asked.host, number), answer(asked, number)
        require(
            came == due,
            f"{asked}: id {number} gave {said(came)}; due was {said(due)}, since the driver shows "
            f"{'every device' if visible is None else text_of(visible)}",
        )


def _usable_host(backend: BackendUnderTest, host: ModelHost) -> ModelHost:
    return host if takes_hosts(backend) else UNKNOWN_HOST


def _without_lists_beyond(backend: BackendUnderTest) -> None:
    """UUIDs of a stand-in host mean nothing to an adapter that may know the real one."""
    if has_cuda_grammar(backend) and not takes_hosts(backend) and backend.device_count:
        not_checkable("the adapter may know the real host's UUIDs, and does not take a stand-in for its device table")


# Unset, empty, none ---------------------------------------------------------------------------------------------------------------


@clause("VIS-1", "VIS-7", examples=0.3)
@given(host=hosts(), data=st.data())
def test_unset_is_every_device(backend: BackendUnderTest, host: ModelHost, data: st.DataObject) -> None:
    host = _usable_host(backend, host)
    asked = View(vendor_or_none(backend), host, {}, backend)
    most = largest_list(backend) if host.count is None else host.count
    number = data.draw(st.integers(0, most - 1))
    came = asked.resolve(number)
    require(came == number, f"{asked}: id {number} resolved to {came!r}; due was the same number, since every device is visible")
    if host.count is not None:
        expect_refusal(asked.resolve, host.count + data.draw(st.integers(0, 3)), errors=REFUSALS)


@clause("VIS-1", "VIS-8", examples=0.4)
@given(
    host=hosts(),
    device_id=st.sampled_from((0, "0", 1, UUIDS[0], 0.0)),
    value=st.sampled_from(("", "-1", "NoDevFiles", "0,0", "x,0")),
)
def test_nothing_visible(backend: BackendUnderTest, host: ModelHost, device_id: Any, value: str) -> None:
    asked = cuda_view(backend, _usable_host(backend, host), value)
    expect_refusal(asked.resolve, device_id, errors=REFUSALS, quoting=VARIABLES[asked.vendor][0])


@clause("VIS-8", examples=0.3)
@given(data=st.data())
def test_the_variable_that_hides_everything_is_named(backend: BackendUnderTest, data: st.DataObject) -> None:
    asked = view(backend, UNKNOWN_HOST, data.draw(st.sampled_from(HIDING[vendor_of(backend)])))
    refusal = str(expect_refusal(asked.resolve, data.draw(st.integers(0, 9) | st.just(UUIDS[0])), errors=REFUSALS))
    named = any(name in refusal for name in asked.environment)
    require(named, f"{asked}: nothing is visible, but the error names no variable: {refusal}")


@clause("VIS-1", examples=0.1)
@given(value=st.integers(0, 7).map(str))
def test_set_but_empty_means_what_the_grammar_says(backend: BackendUnderTest, value: str) -> None:
    vendor = vendor_of(backend)
    for variable in VARIABLES[vendor]:
        rest = {name: value for name in VARIABLES[vendor] if name not in {variable, "ONEAPI_DEVICE_SELECTOR"}}
        for environment in ({variable: ""}, {**rest, variable: ""}):
            if variable not in {"ASCEND_RT_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR"}:  # the documents do not say
                asked = view(backend, UNKNOWN_HOST, environment)
                _require_numbers(asked, shown(vendor, environment, asked.host), min(3, largest_list(backend)))


# Lists ----------------------------------------------------------------------------------------------------------------------------


@clause("VIS-4", "VIS-9")
@given(host=hosts(), data=st.data())
def test_entries_resolve_in_the_drivers_order(backend: BackendUnderTest, host: ModelHost, data: st.DataObject) -> None:
    vendor, host = vendor_of(backend), _usable_host(backend, host)
    environment = data.draw(environments(vendor, host.count or largest_list(backend)))
    if any(value.startswith("GPU-") for value in environment.values()):
        _without_lists_beyond(backend)
    asked = view(backend, host, environment)
    visible = shown(vendor, environment, host)
    _require_numbers(asked, visible, 9 if takes_hosts(backend) else largest_list(backend))


@clause("VIS-4", "VIS-7", examples=0.5)
@given(data=st.data())
def test_physical_ids_win_over_local_ids(backend: BackendUnderTest, data: st.DataObject) -> None:
    vendor, most = vendor_of(backend), largest_list(backend)
    listed = data.draw(numbers(most, least=1))
    if vendor in ("npu", "xpu"):
        listed = sorted(listed)
    asked = view(backend, UNKNOWN_HOST, {listing_variable(vendor): ",".join(map(str, listed))})
    for local, number in enumerate(listed):
        came = asked.resolve(number)
        require(came == local, f"{asked}: physical id {number} resolved to {came!r}; due was {local}, its place in the list")
    for local in set(range(len(listed))) - set(listed):
        came = asked.resolve(local)
        require(came == local, f"{asked}: {local} is no physical id in the list, so it is a local id; it resolved to {came!r}")
    outside = data.draw(st.integers(len(listed), _MANY).filter(lambda number: number not in listed))
    refusal = str(expect_refusal(asked.resolve, outside, errors=REFUSALS, quoting=listing_variable(vendor)))
    value = asked.environment[listing_variable(vendor)]
    require(value in refusal, f"{asked}: the refusal of {outside} does not show the variable's value {value!r}: {refusal}")
    rest = re.sub(rf"{listing_variable(vendor)}\W{{0,3}}{value}", "", refusal)
    require(
        all(re.search(rf"\b{number}\b", rest) for number in listed),
        f"{asked}: the refusal of {outside} does not say that {listed} would be accepted: {refusal}",
    )


@clause("VIS-2")
@given(host=hosts(), data=st.data())
def test_the_first_invalid_entry_ends_the_list(backend: BackendUnderTest, host: ModelHost, data: st.DataObject) -> None:
    _without_lists_beyond(backend)
    host = _usable_host(backend, host)
    value = data.draw(cuda_lists(host.count or largest_list(backend)))
    asked = cuda_view(backend, host, value)
    visible = shown(asked.vendor, asked.environment, host)
    _require_numbers(asked, visible, 9 if takes_hosts(backend) else largest_list(backend))
    for local, device in enumerate(visible or ()):
        due = resolved_uuid(visible, host, device.name) if device.name else local
        if due == local and device.name:
            came = answer(asked, device.name)
            require(came == local, f"{asked}: {device.name} gave {said(came)}; due was local id {local}")


@clause("VIS-3", examples=0.6)
@given(data=st.data(), ids=st.lists(st.integers(0, 9) | st.sampled_from(UUIDS), min_size=1, max_size=3))
def test_a_duplicate_voids_the_list(backend: BackendUnderTest, data: st.DataObject, ids: list[Any]) -> None:
    by_uuid = data.draw(st.booleans()) and takes_hosts(backend)
    listed = data.draw(numbers(largest_list(backend), least=1))
    entries = [UUIDS[number] if by_uuid else str(number) for number in listed]
    repeated = data.draw(st.sampled_from(entries))
    short = repeated[: data.draw(st.integers(9, 20))] if by_uuid else repeated
    place = data.draw(st.integers(entries.index(repeated) + 1, len(entries)))
    end = data.draw(st.sampled_from(([], ["-1"] if not by_uuid else ["x"])))
    value = ",".join([*entries[:place], short, *entries[place:], *end])
    asked = cuda_view(backend, FULL_HOST if takes_hosts(backend) else UNKNOWN_HOST, value)
    for device_id in ids:
        refusal = str(expect_refusal(asked.resolve, device_id, errors=REFUSALS, quoting=short))
        require(
            re.search("duplicat|repeat|twice|more than once", refusal.lower()),
            f"{asked}: {short!r} is a duplicate and voids the list, but the refusal of {device_id!r} does not say so: {refusal}",
        )


@clause("VIS-5")
@given(listed=uuid_lists(), number=st.integers(0, 7), length=st.integers(5, 40), known=st.booleans())
def test_uuids_match_by_prefix_in_either_direction(
    backend: BackendUnderTest, listed: str, number: int, length: int, known: bool
) -> None:
    _without_lists_beyond(backend)
    host = FULL_HOST if known and takes_hosts(backend) else UNKNOWN_HOST
    asked = cuda_view(backend, host, listed)
    visible = shown(asked.vendor, asked.environment, host)
    _require_uuid(asked, visible, UUIDS[number][:length])


@clause("VIS-5")
@given(
    parts=st.lists(st.text("0123456789abcdef-", min_size=1, max_size=6), min_size=1, max_size=4, unique=True),
    asked_for=st.text("0123456789abcdef-", max_size=8),
    kind=st.sampled_from(("GPU-", "MIG-")),
)
def test_short_and_long_ids_of_unknown_cards(backend: BackendUnderTest, parts: list[str], asked_for: str, kind: str) -> None:
    _without_lists_beyond(backend)
    listed = parts if kind == "GPU-" else parts[:1]  # a process sees one MIG device
    asked = cuda_view(backend, UNKNOWN_HOST, ",".join(kind + part for part in listed))
    visible = shown(asked.vendor, asked.environment, UNKNOWN_HOST)
    _require_uuid(asked, visible, kind + (asked_for or parts[0]))
    _require_uuid(asked, visible, kind + parts[0])


def _require_uuid(asked: View, visible: Shown, text: str) -> None:
    due = resolved_uuid(visible, asked.host, text)
    if isinstance(due, int):
        came = answer(asked, text)
        require(came == due, f"{asked}: {text!r} gave {said(came)}; due was local id {due}")
        return
    refusal = str(expect_refusal(asked.resolve, text, errors=REFUSALS))
    if due == "ambiguous":
        require("ambig" in refusal.lower(), f"{asked}: several devices fit {text!r}, but the refusal does not say so: {refusal}")


# Which variables ------------------------------------------------------------------------------------------------------------------


@clause("VIS-10", examples=0.6)
@given(data=st.data())
def test_own_variables_are_read_and_no_others(backend: BackendUnderTest, data: st.DataObject) -> None:
    vendor, most = vendor_of(backend), largest_list(backend)
    own = data.draw(environments(vendor, most))
    if any(value.startswith("GPU-") for value in own.values()):
        _without_lists_beyond(backend)
    foreign_names = [name for name in (*ALL_VARIABLES, "NVIDIA_VISIBLE_DEVICES") if name not in VARIABLES[vendor]]
    foreign = data.draw(st.dictionaries(st.sampled_from(foreign_names), st.sampled_from(("", "1", "3,2", "-1", "7")), min_size=1))
    asked = view(backend, UNKNOWN_HOST, {**own, **foreign})
    _require_numbers(asked, shown(vendor, own, UNKNOWN_HOST), min(4, most))


@clause("VIS-10")
def test_the_named_variable_is_one_of_the_drivers(backend: BackendUnderTest) -> None:
    vendor = vendor_of(backend)
    named = getattr(backend.accelerator, "visible_devices_env", None)
    require(
        named in VARIABLES[vendor], f"visible_devices_env is {named!r}; the {vendor} driver reads {', '.join(VARIABLES[vendor])}"
    )
