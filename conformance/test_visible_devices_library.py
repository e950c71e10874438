"""VIS: every vendor's grammar, composition, formatting and counting; and the driver's own view of a list."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch.cuda
from hypothesis import given

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, not_checkable, require
from conformance.models.visible_devices import VARIABLES, ModelHost, Shown, shown, text_of
from conformance.visible_devices_strategies import UNKNOWN_HOST, UUIDS, cuda_lists, environments, hosts, numbers
from conformance.visible_devices_view import REFUSALS, View, cuda_view, set_variables, takes_hosts, vendor_of
from harness.accelerator import visible_devices as reference
from harness.accelerator.visible_devices import GRAMMARS, PhysicalDevice, PhysicalDeviceId, VisibleDevices

_VENDORS = st.sampled_from(sorted(VARIABLES))
_CHILD = "conformance.child_programs.visible_devices:identities"


def _read(vendor: str, environment: dict[str, str], host: ModelHost = UNKNOWN_HOST) -> VisibleDevices:
    table = None if host.uuids is None else tuple(PhysicalDevice(number, uuid) for number, uuid in enumerate(host.uuids))
    return reference.read_visible_devices(GRAMMARS[vendor], environment, table)


def _values(visible: VisibleDevices) -> list[int | str] | None:
    return None if visible.entries is None else [entry.value for entry in visible.entries]


def _require_shown(vendor: str, environment: dict[str, str], host: ModelHost, due: Shown) -> None:
    visible = _read(vendor, environment, host)
    came = _values(visible)
    names = None if due is None else [{device.number, device.name} - {None} for device in due]
    agrees = came is None if names is None else came is not None and len(came) == len(names) and all(map(_among, came, names))
    require(
        agrees,
        f"{vendor} with {environment} on {host}: the grammar shows {came}; due was {'every device' if due is None else text_of(due)}",
    )


def _among(value: int | str, names: set[int | str | None]) -> bool:
    return value in names


# Against PyTorch ------------------------------------------------------------------------------------------------------------------


@clause("VIS-11")
@given(
    value=cuda_lists(8)
    | st.text("0123456789,+- gx", max_size=10)
    | st.lists(st.sampled_from(("MIG-a", "MIG-b", "GPU-a", "GPU-a", "GPU-ab", "x")), max_size=4).map(",".join)
)
def test_cuda_lists_are_read_as_pytorch_reads_them(backend: BackendUnderTest, value: str) -> None:
    with set_variables(("CUDA_VISIBLE_DEVICES",), {"CUDA_VISIBLE_DEVICES": value}), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.version, "hip", None)
        try:
            due = torch.cuda._parse_visible_devices()
        except ValueError:  # PyTorch gives no list
            return
    due = due[:1] if value.startswith("MIG-") else due  # PyTorch leaves it to the driver to show the first alone
    came = _values(_read("cuda", {"CUDA_VISIBLE_DEVICES": value}))
    require(came == due, f"CUDA_VISIBLE_DEVICES={value!r} is read as {came}; PyTorch reads {due}")
    if getattr(backend.accelerator, "device_type", "") == "cuda" and takes_hosts(backend):
        asked = cuda_view(backend, UNKNOWN_HOST, value)
        for local, entry in enumerate(due):
            if isinstance(entry, int):
                answer = asked.resolve(entry)
                require(answer == local, f"{asked}: {entry} resolved to {answer!r}; PyTorch's list is {due}, so due was {local}")


# Layers ---------------------------------------------------------------------------------------------------------------------------


@clause("VIS-13", "VIS-17")
@given(vendor=_VENDORS, host=hosts(), data=st.data())
def test_every_grammar_reads_as_its_vendors_documents_say(
    backend: BackendUnderTest, vendor: str, host: ModelHost, data: st.DataObject
) -> None:
    environment = data.draw(environments(vendor, host.count or 8))
    _require_shown(vendor, environment, host, shown(vendor, environment, host))


@clause("VIS-13", examples=0.5)
@given(lower=numbers(8, least=1), data=st.data())
def test_layers_compose_by_reindexing(backend: BackendUnderTest, lower: list[int], data: st.DataObject) -> None:
    upper = data.draw(numbers(len(lower), least=1))
    environment = {"ROCR_VISIBLE_DEVICES": ",".join(map(str, lower)), "HIP_VISIBLE_DEVICES": ",".join(map(str, upper))}
    came = _values(_read("rocm", environment))
    due = [lower[number] for number in upper]
    require(came == due, f"{environment} shows {came}; HIP counts within what ROCr left, so due was {due}")
    mask, chosen = sorted(lower), sorted(upper)
    environment = {
        "ZE_AFFINITY_MASK": ",".join(map(str, lower)),
        "ONEAPI_DEVICE_SELECTOR": "level_zero:" + ",".join(map(str, upper)),
    }
    came = _values(_read("xpu", environment))
    due = [mask[number] for number in chosen]
    require(came == due, f"{environment} shows {came}; the selector counts within what the mask left, so due was {due}")


@clause("VIS-13", examples=0.2)
@given(number=st.integers(1, 7), device_id=st.integers(0, 8))
def test_the_same_number_in_both_layers_is_diagnosed(backend: BackendUnderTest, number: int, device_id: int) -> None:
    environment = {"ROCR_VISIBLE_DEVICES": str(number), "HIP_VISIBLE_DEVICES": str(number)}
    visible = _read("rocm", environment)
    require(
        _values(visible) == [], f"{environment} shows {_values(visible)}; HIP has device 0 alone to choose from, so due was none"
    )
    refusal = str(expect_refusal(visible.resolve, device_id))
    for variable in environment:
        require(
            variable in visible.diagnosis and variable in refusal,
            f"{environment} shows nothing, but {variable} is not named: {refusal}",
        )
    if vendor_of(backend) == "rocm":
        asked = View("rocm", UNKNOWN_HOST, environment, backend)
        text = str(expect_refusal(asked.resolve, device_id, errors=REFUSALS))
        require(all(variable in text for variable in environment), f"{asked}: the refusal must name both variables: {text}")


# Formatting and counting ----------------------------------------------------------------------------------------------------------


@clause("VIS-15", examples=0.7)
@given(vendor=_VENDORS, listed=numbers(9), data=st.data())
def test_formatting_and_reading_back_is_the_identity(
    backend: BackendUnderTest, vendor: str, listed: list[int], data: st.DataObject
) -> None:
    grammar = GRAMMARS[vendor]
    ids: list[int | str] = sorted(listed) if vendor in ("npu", "xpu") else list(listed)
    if vendor in ("cuda", "musa", "rocm") and data.draw(st.booleans()):
        ids = [UUIDS[number % 8] + str(number) for number in listed]
    variable = data.draw(st.sampled_from(VARIABLES[vendor]))
    if vendor == "xpu" and not ids:
        expect_refusal(reference.format_visible_devices, grammar, ids, variable)  # neither variable has a value for no device
        return
    text = reference.format_visible_devices(grammar, [PhysicalDeviceId(one) for one in ids], variable)
    came = _values(_read(vendor, {variable: text}))
    require(came == ids, f"{variable}: {ids} is written as {text!r}, which is read back as {came}")
    require(
        not set(text) & set("[](){}'\" \t"),
        f"{variable}: {ids} is written as {text!r}; brackets, quotes and spaces are no notation",
    )
    if variable == "ONEAPI_DEVICE_SELECTOR":
        require(text.startswith("level_zero:"), f"{variable} needs a backend before the numbers, as in level_zero:0; came {text!r}")
    visible_to_model = shown(vendor, {variable: text}, UNKNOWN_HOST)
    numbers_shown = [device.name if device.number is None else device.number for device in visible_to_model or ()]
    require(numbers_shown == ids, f"{variable}={text!r} shows {numbers_shown} to the driver; due was {ids}")


@clause("VIS-16", examples=0.5)
@given(vendor=_VENDORS, listed=numbers(9, least=1), data=st.data())
def test_dropped_entries_are_named(backend: BackendUnderTest, vendor: str, listed: list[int], data: st.DataObject) -> None:
    ids = sorted(listed) if vendor in ("npu", "xpu") else listed
    variable = VARIABLES[vendor][0]
    visible = _read(vendor, {variable: ",".join(map(str, ids))})
    visible.check_device_count(len(ids))
    actual = data.draw(st.integers(0, len(ids) - 1))
    refusal = str(expect_refusal(visible.check_device_count, actual, quoting=variable))
    rest = refusal.replace(repr(",".join(map(str, ids))), "", 1)
    for number in ids[actual:]:
        require(
            f"'{number}'" in rest,
            f"{variable}={ids} with {actual} devices shown: the error does not name the dropped {number}: {refusal}",
        )


@clause("VIS-16", examples=0.2)
@given(count=st.integers(1, 6), extra=st.integers(0, 3), vendor=st.sampled_from(("cuda", "musa", "mlu", "npu")))
def test_entries_past_the_last_device_are_named(backend: BackendUnderTest, count: int, extra: int, vendor: str) -> None:
    host = ModelHost(UUIDS[:count])
    visible = _read(vendor, {VARIABLES[vendor][0]: f"0,{count + extra}"}, host)
    require(_values(visible) == [0], f"on a host with {count} devices, '0,{count + extra}' shows {_values(visible)}; due was [0]")
    expect_refusal(visible.check_device_count, 1, quoting=f"'{count + extra}'")
    require(
        f"'{count + extra}'" in visible.diagnosis,
        f"the report does not name the dropped entry {count + extra}: {visible.diagnosis}",
    )


# The written grammars -------------------------------------------------------------------------------------------------------------

_WRITTEN_DOWN: tuple[tuple[str, dict[str, str], list[int | str] | None], ...] = (
    ("cuda", {"CUDA_VISIBLE_DEVICES": "1gpu2,2ampere"}, [1, 2]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "2, +3, -0, 5"}, [2, 3, 0, 5]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "0, 1, 2, 1"}, []),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "0,2,-1,1"}, [0, 2]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
    ("musa", {"MUSA_VISIBLE_DEVICES": "2,1"}, [2, 1]),
    ("mlu", {"MLU_VISIBLE_DEVICES": "1gpu2,2ampere"}, []),
    ("mlu", {"MLU_VISIBLE_DEVICES": "2, +3, -0, 5"}, [2]),
    ("mlu", {"MLU_VISIBLE_DEVICES": "0, 1, 2, 1"}, []),
    ("npu", {"ASCEND_RT_VISIBLE_DEVICES": "0,1,2,5"}, [0, 1, 2, 5]),
    ("npu", {"ASCEND_RT_VISIBLE_DEVICES": "2,1"}, []),
    ("npu", {"ASCEND_RT_VISIBLE_DEVICES": "1, 2,3"}, [1]),
    ("xpu", {"ZE_AFFINITY_MASK": "2,1"}, [1, 2]),
    ("xpu", {"ONEAPI_DEVICE_SELECTOR": "level_zero:1,0"}, [0, 1]),
    ("xpu", {"ONEAPI_DEVICE_SELECTOR": "0,1"}, []),
    ("xpu", {"ZE_AFFINITY_MASK": "0.1"}, ["0.1"]),
    ("rocm", {"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, [1]),
    ("rocm", {"HIP_VISIBLE_DEVICES": "0,0,1"}, [0, 1]),
    ("rocm", {"ROCR_VISIBLE_DEVICES": "0,0,1"}, [0]),
)
"""What the vendors' documents, sources and tests say outright."""


@clause("VIS-17")
def test_grammars_are_written_down_with_their_sources(backend: BackendUnderTest) -> None:
    require(set(GRAMMARS) == set(VARIABLES), f"grammars are written down for {sorted(GRAMMARS)}; due were {sorted(VARIABLES)}")
    for vendor, grammar in GRAMMARS.items():
        require(
            grammar.variables == VARIABLES[vendor], f"{vendor}: the grammar reads {grammar.variables}; due was {VARIABLES[vendor]}"
        )
        require(grammar.primary_variable in grammar.variables, f"{vendor}: {grammar.primary_variable!r} is not among the variables")
        require(len(grammar.source) > 80, f"{vendor}: the grammar names no source")
    for vendor, environment, due in _WRITTEN_DOWN:
        came = _values(_read(vendor, environment))
        require(came == due, f"{vendor} with {environment} shows {came}; the vendor says {due}")


# The driver -----------------------------------------------------------------------------------------------------------------------


@clause("VIS-12")
def test_local_devices_are_the_listed_ones(backend: BackendUnderTest) -> None:
    vendor = vendor_of(backend)
    unset = dict.fromkeys(VARIABLES[vendor])
    everything = backend.in_child(_CHILD, environment=unset)
    if not everything:
        not_checkable("without the variable the process sees no device")
    if None in everything or len(set(everything)) < len(everything):
        not_checkable(f"the runtime tells neither a UUID nor a PCI id that sets the devices apart: {everything}")
    grammar = GRAMMARS[vendor]
    count = len(everything)
    lists = {tuple(range(count)), (count - 1,), (0,)}
    if vendor not in ("npu", "xpu"):
        lists |= {tuple(reversed(range(count))), (count - 1, *range(count - 1))}
    for listed in sorted(lists):
        value = reference.format_visible_devices(grammar, listed)
        came = backend.in_child(_CHILD, environment={**unset, grammar.primary_variable: value})
        due = [everything[number] for number in listed]
        require(len(came) == len(listed), f"{grammar.primary_variable}={value}: device_count is {len(came)}; due was {len(listed)}")
        require(came == due, f"{grammar.primary_variable}={value}: local devices are {came}; due were {due}")
