"""DEV: device identity and the current device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import device_type_of, index_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, not_checkable, require
from conformance.child_programs import devices as children
from conformance.device_dtypes import dtypes_of
from conformance.programs import device_program
from conformance.programs.bit_patterns import NEEDED_DTYPES, BitPattern, bit_patterns, bits_of
from conformance.programs.device_forms import DeviceForm, IllegalForm, forms, illegal_forms, settable_forms
from conformance.programs.device_program import REFUSALS, DeviceProgram


def _count(backend: BackendUnderTest) -> int:
    return int(method(backend.accelerator, "device_count")())


@clause("DEV-1")
@given(current=st.integers(0, 3), form=forms)
def test_every_form_of_a_device_agrees(backend: BackendUnderTest, current: int, form: DeviceForm) -> None:
    accelerator, count = backend.accelerator, _count(backend)
    current %= count
    method(accelerator, "set_device")(current)
    due = form.local_index(current, count)
    value = form.value(device_type_of(accelerator), count)
    device, name = method(accelerator, "device")(value), method(accelerator, "device_name")(value)
    where = f"with device {current} current, "
    require(index_of(accelerator, device) == due, f"{where}device({value!r}) is {device!r}; due was device {due}")
    require(isinstance(name, str), f"{where}device_name({value!r}) is {name!r}; due was a string")
    again = method(accelerator, "device")(name)
    require(
        again == device, f"{where}device_name({value!r}) is {name!r}, which device() reads as {again!r}; device() said {device!r}"
    )
    require(method(accelerator, "device")(device) == device, f"{where}device() of its own result {device!r} is another device")
    fixed = method(accelerator, "device_name")(name)
    require(fixed == name, f"{where}device_name of its own result {name!r} is {fixed!r}")
    expected = torch.device(name)
    require(
        expected.type == device.type and expected.index in (device.index, None),
        f"{where}device_name({value!r}) is {name!r}, which PyTorch reads as {expected!r}; device() said {device!r}",
    )


@clause("DEV-2")
@given(form=illegal_forms)
def test_what_names_no_device_is_refused_by_name(backend: BackendUnderTest, form: IllegalForm) -> None:
    accelerator, count = backend.accelerator, _count(backend)
    device_type = device_type_of(accelerator)
    value = form.value(device_type, count)
    if isinstance(value, torch.device) and value.type == device_type and value.index is not None and value.index < count:
        return  # more devices than a torch.device can number

    def device_context(asked: Any) -> str:
        with method(accelerator, "device_context")(asked):
            return "a context"

    device_context.__qualname__ = "device_context"
    calls = [*(method(accelerator, name) for name in ("device", "device_name", "set_device")), device_context]
    for call in calls:
        expect_refusal(call, value, errors=REFUSALS, quoting=form.quoted(device_type, count))


@clause("DEV-3")
@given(before=st.integers(0, 3), form=settable_forms)
def test_the_device_that_was_set_is_current(backend: BackendUnderTest, before: int, form: DeviceForm) -> None:
    accelerator, count = backend.accelerator, _count(backend)
    method(accelerator, "set_device")(before % count)
    value = form.value(device_type_of(accelerator), count)
    method(accelerator, "set_device")(value)
    due, actual = form.local_index(before % count, count), method(accelerator, "current_device")()
    require(
        isinstance(actual, int) and not isinstance(actual, bool) and actual == due,
        f"after set_device({before % count}) and set_device({value!r}), current_device() is {actual!r}; due was {due}",
    )


@clause("DEV-3", "DEV-4")
def test_set_device_refuses_none(backend: BackendUnderTest) -> None:
    accelerator = backend.accelerator
    last = _count(backend) - 1
    method(accelerator, "set_device")(last)
    expect_refusal(method(accelerator, "set_device"), None, errors=REFUSALS)
    actual = method(accelerator, "current_device")()
    require(actual == last, f"after the refused set_device(None), current_device() is {actual!r}; due was {last}")


@clause("DEV-4")
@given(program=device_program.set_programs)
def test_refused_settings_change_nothing(backend: BackendUnderTest, program: DeviceProgram) -> None:
    program.run(backend.accelerator)


@clause("DEV-5", tier="multi-device")
@given(program=device_program.thread_programs)
def test_each_thread_has_its_own_current_device(backend: BackendUnderTest, program: DeviceProgram) -> None:
    program.run(backend.accelerator)


@clause("DEV-8", tier="multi-device")
@given(program=device_program.context_programs)
def test_contexts_restore_what_was_current(backend: BackendUnderTest, program: DeviceProgram) -> None:
    program.run(backend.accelerator)


_CHANGES: tuple[tuple[str | None, tuple[str | None, ...]], ...] = ((None, ("", "1,0", "63")), ("0", (None, "")))
"""(the variable at first use, what it becomes later)"""


@clause("DEV-6")
@pytest.mark.parametrize(("first", "later"), _CHANGES, ids=["unset-at-first-use", "one-device-at-first-use"])
def test_a_change_after_first_use_is_reported_and_not_half_applied(
    backend: BackendUnderTest, first: str | None, later: tuple[str | None, ...]
) -> None:
    variable = getattr(backend.accelerator, "visible_devices_env", "")
    if not variable:
        not_checkable(f"{backend.name} has no visible-devices variable")
    answer = backend.in_child(
        children.changes_after_first_use,
        environment={**dict.fromkeys(_variables(backend.accelerator)), variable: first},
        variable=variable,
        later_values=list(later),
        physical_id=0,
    )
    at_first = answer["first"]
    usable = at_first.pop("usable")
    counted = at_first["device_count()"]
    due = {index: index != str(counted) for index in usable}
    require(
        usable == due,
        f"with {variable}={first!r} at first use, device_count() was {counted}; whether a tensor can be made, by device: {usable}",
    )
    for change in answer["changes"]:
        story = f"{variable} was {first!r} at first use and became {change['later']!r}: "
        require(change["usable"] == usable, f"{story}where tensors can be made was {usable} and is {change['usable']}")
        require(change["reports"], f"{story}neither a warning nor an error that names {variable} reported it")
        for question, value in change["answers"].items():
            require(
                value == at_first[question] or (isinstance(value, str) and variable in value),
                f"{story}{question} became {value!r}; due was {at_first[question]!r}, as the runtime has it, "
                f"or an error that names {variable}",
            )
            again = change["again"][question]
            require(again == value, f"{story}{question} was {value!r} and then {again!r}")


def _variables(accelerator: Any) -> tuple[str, ...]:
    return tuple(getattr(getattr(accelerator, "visible_devices_grammar", None), "variables", ()))


@clause("DEV-6")
def test_the_count_is_the_number_of_usable_devices(backend: BackendUnderTest) -> None:
    accelerator, count = backend.accelerator, _count(backend)
    available = method(accelerator, "is_available")()
    require(available and type(count) is int and count >= 1, f"device_count() is {count!r} where is_available() is {available!r}")
    for index in range(count):
        device = method(accelerator, "device")(index)
        value = torch.ones(1, device=device).sum().item()
        require(value == 1, f"a sum of one 1 on {device} is {value}; device_count() is {count}")
    expect_refusal(method(accelerator, "set_device"), count, errors=REFUSALS)


# Copies


@clause("DEV-7")
def test_the_dtypes_that_models_need_are_there(backend: BackendUnderTest) -> None:
    missing = [str(dtype) for dtype in NEEDED_DTYPES if dtype not in dtypes_of(backend)]
    require(not missing, f"{backend.name} can make no tensor of {', '.join(missing)}")


@clause("DEV-7")
@given(
    pattern=bit_patterns(), device=st.integers(0, 3), current=st.integers(0, 3), way=st.sampled_from(["to", "copy_", "into a view"])
)
def test_copies_keep_every_bit(backend: BackendUnderTest, pattern: BitPattern, device: int, current: int, way: str) -> None:
    if pattern.dtype not in dtypes_of(backend):
        return
    accelerator, count = backend.accelerator, _count(backend)
    method(accelerator, "set_device")(current % count)
    target = method(accelerator, "device")(device % count)
    host, bits = pattern.tensors()
    there = _copied(host, target, way)
    _require_on(accelerator, there, device % count, pattern)
    back = there.to("cpu")
    _require_bits(pattern, bits, back, f"{way} {target} and back")
    _require_bits(pattern, bits, there.clone().cpu(), f"{way} {target}, cloned and back")


@clause("DEV-7", examples=0.5)
@given(
    pattern=bit_patterns(), first=st.integers(0, 3), second=st.integers(0, 3), way=st.sampled_from(["to", "copy_", "into a view"])
)
def test_copies_between_devices_keep_every_bit(
    backend: BackendUnderTest, pattern: BitPattern, first: int, second: int, way: str
) -> None:
    if pattern.dtype not in dtypes_of(backend):
        return
    accelerator, count = backend.accelerator, _count(backend)
    method(accelerator, "set_device")(0)
    source, target = method(accelerator, "device")(first % count), method(accelerator, "device")(second % count)
    host, bits = pattern.tensors()
    there = _copied(host.to(source), target, way)
    _require_on(accelerator, there, second % count, pattern)
    _require_bits(pattern, bits, there.cpu(), f"from {source} {way} {target} and back")


def _copied(source: torch.Tensor, device: torch.device, way: str) -> torch.Tensor:
    if way == "to":
        return source.to(device)
    if way == "copy_":
        return torch.empty(source.shape, dtype=source.dtype, device=device).copy_(source)
    # A view with gaps: every second element of the last dimension of a larger tensor.
    shape = (*source.shape[:-1], 2 * source.shape[-1])
    return torch.zeros(shape, dtype=source.dtype, device=device)[..., ::2].copy_(source)


def _require_on(accelerator: Any, tensor: torch.Tensor, due: int, pattern: BitPattern) -> None:
    said = tensor.device
    index = index_of(accelerator, method(accelerator, "device")(said)) if said.index is None else said.index
    require(
        said.type == device_type_of(accelerator) and index == due,
        f"a tensor of {pattern!r} made on device {due} says that it is on {said!r}",
    )


def _require_bits(pattern: BitPattern, due: torch.Tensor, actual: torch.Tensor, route: str) -> None:
    require(actual.dtype == pattern.dtype, f"{pattern!r}, {route}, came back as {actual.dtype}")
    found = bits_of(actual)
    require(found.shape == due.shape, f"{pattern!r}, {route}, came back with shape {tuple(actual.shape)}")
    wrong = (found != due).nonzero()
    if wrong.numel():
        at = tuple(wrong[0].tolist())
        require(False, f"{pattern!r}, {route}: at {at} the bits are {int(found[at]):#x}; due was {int(due[at]):#x}")


# Operands on two devices


@dataclass(frozen=True)
class _Mixture:
    """A computation of two tensors. `exempt` is the operand that is an index or a mask, which may be on the CPU."""

    compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    exempt: str = ""


_MIXTURES = {
    "a + b": _Mixture(lambda a, b: a + b),
    "a @ b": _Mixture(lambda a, b: a @ b),
    "a.add_(b)": _Mixture(lambda a, b: a.add_(b)),
    "torch.cat([a, b])": _Mixture(lambda a, b: torch.cat([a, b])),
    "torch.addmm(a, b, b)": _Mixture(lambda a, b: torch.addmm(a, b, b)),
    "torch.where(a > 0, b, b)": _Mixture(lambda a, b: torch.where(a > 0, b, b), exempt="a"),
    "a.index_select(0, b[0].long())": _Mixture(lambda a, b: a.index_select(0, b[0].long()), exempt="b"),
    "a.gather(0, b.long())": _Mixture(lambda a, b: a.gather(0, b.long()), exempt="b"),
}


@clause("DEV-9", tier="multi-device")
@given(
    operation=st.sampled_from(sorted(_MIXTURES)),
    first=st.sampled_from([0, 1, 2, "cpu"]),
    second=st.sampled_from([0, 1, 2, "cpu"]),
    current=st.integers(0, 3),
)
def test_operands_on_two_devices_raise(
    backend: BackendUnderTest, operation: str, first: int | str, second: int | str, current: int
) -> None:
    accelerator, count = backend.accelerator, _count(backend)
    mixture = _MIXTURES[operation]
    method(accelerator, "set_device")(current % count)
    places = {
        name: torch.device("cpu") if place == "cpu" else method(accelerator, "device")(int(place) % count)
        for name, place in (("a", first), ("b", second))
    }
    if places["a"] == places["b"] or (mixture.exempt and places[mixture.exempt].type == "cpu"):
        return
    a, b = (torch.ones(2, 2, device=place) for place in places.values())

    def compute() -> str:
        return f"a tensor on {mixture.compute(a, b).device}"

    compute.__qualname__ = f"{operation} with a on {places['a']} and b on {places['b']}"
    expect_refusal(compute, errors=(RuntimeError, IndexError, ValueError, TypeError))


@clause("DEV-9", tier="multi-device", examples=0.3)
@given(first=st.integers(0, 3), second=st.integers(0, 3))
def test_what_may_be_on_two_devices_works(backend: BackendUnderTest, first: int, second: int) -> None:
    accelerator, count = backend.accelerator, _count(backend)
    a = torch.arange(4, device=method(accelerator, "device")(first % count))
    other = method(accelerator, "device")(second % count)
    due = [2, 0]
    require(a[torch.tensor(due)].tolist() == due, f"an index on the CPU into a tensor on {a.device} gave other elements")
    require(
        a[torch.tensor([True, False, True, False])].tolist() == [0, 2], f"a mask on the CPU into a tensor on {a.device} is wrong"
    )
    require((a + torch.tensor(1)).tolist() == [1, 2, 3, 4], f"a scalar on the CPU plus a tensor on {a.device} is wrong")
    copied = torch.zeros(4, dtype=torch.int64, device=other).copy_(a)
    require(copied.tolist() == [0, 1, 2, 3], f"a copy from {a.device} to {other} is {copied.tolist()}")


# Properties, PyTorch's own view, contexts


@clause("DEV-10")
@given(current=st.integers(0, 3), form=forms)
def test_properties_have_a_name_and_a_size(backend: BackendUnderTest, current: int, form: DeviceForm) -> None:
    accelerator, count = backend.accelerator, _count(backend)
    method(accelerator, "set_device")(current % count)
    value = form.value(device_type_of(accelerator), count)
    properties = method(accelerator, "get_device_properties")(value)
    name, total = getattr(properties, "name", None), getattr(properties, "total_memory", None)
    require(isinstance(name, str) and name.strip(), f"the properties of {value!r} have name {name!r}; due was a text")
    require(
        isinstance(total, int) and total > 0, f"the properties of {value!r} have total_memory {total!r}; due were positive bytes"
    )


@clause("DEV-11")
@given(device=st.integers(0, 3))
def test_pytorch_sees_the_same_accelerator(backend: BackendUnderTest, device: int) -> None:
    accelerator, count = backend.accelerator, _count(backend)
    current = torch.accelerator.current_accelerator()
    if current is None or current.type != device_type_of(accelerator):
        not_checkable(f"PyTorch's current accelerator is {current}, not {device_type_of(accelerator)}")
    method(accelerator, "set_device")(device % count)
    seen = torch.accelerator.device_count()
    require(seen == count, f"torch.accelerator.device_count() is {seen}; the adapter has {count}")
    index = torch.accelerator.current_device_index()
    require(index == device % count, f"after set_device({device % count}), torch.accelerator has device {index} current")


@clause("DEV-12")
def test_queries_open_no_context(backend: BackendUnderTest) -> None:
    answer = backend.in_child(children.contexts_after_queries)
    if not answer["observable"]:
        not_checkable(f"nothing on this host tells on which {device_type_of(backend.accelerator)} devices a process has a context")
    require(not answer["before"], f"making the adapter and counting its devices opened contexts on {answer['before']}")
    for found in answer["found"]:
        require(
            set(found["open"]) <= set(found["allowed"]),
            f"after {found['question']}, contexts are open on devices {found['open']}; due were at most {found['allowed']}",
        )
