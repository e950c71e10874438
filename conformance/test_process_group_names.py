"""PGN: process-group backend names.

Strings are written out of known parts; `conformance.models.process_group_names` says from the parts what must come out. The accelerators
are the backend under test and the adapters that the reference brings, which need no device here.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require
from conformance.child_programs import process_group_names as programs
from conformance.models import process_group_names as model
from conformance.models.process_group_names import Names, Parts, Written
from harness.accelerator.cuda import CUDAAccelerator
from harness.accelerator.mlu import MLUAccelerator
from harness.accelerator.musa import MUSAAccelerator
from harness.accelerator.npu import NPUAccelerator
from harness.accelerator.xpu import XPUAccelerator
from harness.errors import UnsupportedCapabilityError

PLUGINS = {"my_nccl_plugin": "cuda", "xnccl": "cpu", "ncclx": "cuda", "mccl2": "cpu", "threaded": "cpu"}
"""Backends as other packages register them, some of whose names contain a transport's."""
HOST_BACKENDS = ("gloo", "mpi", "ucc", "fake")
TRANSPORTS = {"nccl": "cuda", "mccl": "musa", "hccl": "npu", "xccl": "xpu", "cncl": "mlu"}
DEVICES = ("cpu", "cuda", "musa", "npu", "xpu", "mlu")
SPACES = st.sampled_from(["", " ", "\t", "  "])


class AnyCUDA(CUDAAccelerator):
    """CUDA's adapter on a host that may have no device: what it says of names and ids does not depend on one."""

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return 1


def _adapters(backend: BackendUnderTest) -> list[Any]:
    built_in = [AnyCUDA(), MUSAAccelerator(), NPUAccelerator(), XPUAccelerator(), MLUAccelerator()]
    try:
        _names(backend.accelerator)
    except (UnsupportedCapabilityError, NotImplementedError):  # a device without any transport has no name to map to
        return built_in
    return [backend.accelerator, *built_in]


def _names(accelerator: Any) -> Names:
    return Names(accelerator.device_type, accelerator.communication_backend_name)


accelerators = st.integers(0, 5)


def _chosen(backend: BackendUnderTest, number: int) -> Any:
    adapters = _adapters(backend)
    return adapters[number % len(adapters)]


@st.composite
def cased(draw: st.DrawFn, text: str) -> str:
    """The text with some letters in upper case."""
    upper = draw(st.integers(0, 2 ** len(text) - 1))
    return "".join(letter.upper() if upper >> place & 1 else letter for place, letter in enumerate(text))


@st.composite
def bare_names(draw: st.DrawFn, names: st.SearchStrategy[str]) -> Written:
    """A bare backend name in any case, with spaces around it."""
    name = draw(names)
    return Written(draw(SPACES) + draw(cased(name)) + draw(SPACES), ((None, name),))


@st.composite
def composites(draw: st.DrawFn, *, spaces: bool = True) -> Written:
    """Devices and backends, each device once; the logical pair often."""
    devices = draw(st.lists(st.sampled_from(DEVICES), min_size=1, max_size=4, unique=True))
    backends = st.sampled_from(["nccl", "gloo", *TRANSPORTS, *HOST_BACKENDS[1:], *PLUGINS])
    parts: Parts = tuple((device, "nccl" if device == "cuda" and draw(st.booleans()) else draw(backends)) for device in devices)
    gaps = [draw(SPACES) if spaces else "" for _ in range(4 * len(parts))]
    entries = [
        f"{gaps[4 * i]}{device}{gaps[4 * i + 1]}:{gaps[4 * i + 2]}{name}{gaps[4 * i + 3]}" for i, (device, name) in enumerate(parts)
    ]
    text = ",".join(entries)
    return Written(draw(cased(text)), parts, has_inner_spaces=len(text.strip().split()) > 1)


def well_formed(*, spaces: bool = True) -> st.SearchStrategy[Written]:
    """Any backend string that must be accepted, conflicts apart."""
    names = st.sampled_from([*HOST_BACKENDS, *TRANSPORTS, *PLUGINS])
    return st.one_of(bare_names(names), composites(spaces=spaces))


def _normalized(backend: BackendUnderTest, written: Written, accelerator: Any) -> str | None:
    """What the normalizer makes of a string; None where it refuses one that PyTorch would not take either."""
    try:
        answer = backend.normalizer(written.text, accelerator)
    except ValueError:
        if written.has_inner_spaces:
            return None
        raise
    require(isinstance(answer, str), f"normalizing {written.text!r} gave {answer!r}; due was a string")
    return answer


def _meant(written: Written, accelerator: Any) -> Parts:
    """The parts that are due; strings whose entries conflict are PGN-6's."""
    names = _names(accelerator)
    assume(not model.merges_into_host(written.parts, names))
    due = model.mapped(written.parts, names)
    assume(due is not None)
    return due or ()


@clause("PGN-1")
@given(number=accelerators, written=bare_names(st.just("nccl")))
@example(number=0, written=Written("nccl", ((None, "nccl"),)))
def test_the_logical_backend_becomes_the_transport(backend: BackendUnderTest, number: int, written: Written) -> None:
    accelerator = _chosen(backend, number)
    due = accelerator.communication_backend_name
    found = backend.normalizer(written.text, accelerator)
    require(found == due, f"{written.text!r} on {accelerator.device_type} became {found!r}; due was {due!r}")


@clause("PGN-2")
@given(number=accelerators, written=composites())
@example(number=0, written=Written("cpu:gloo,cuda:nccl", (("cpu", "gloo"), ("cuda", "nccl"))))
@example(number=0, written=Written("CUDA:NCCL,CPU:GLOO", (("cuda", "nccl"), ("cpu", "gloo"))))
@example(number=2, written=Written("cuda:nccl", (("cuda", "nccl"),)))
def test_each_entry_of_a_composite_is_mapped_in_place(backend: BackendUnderTest, number: int, written: Written) -> None:
    accelerator = _chosen(backend, number)
    due = model.printed(_meant(written, accelerator))
    found = _normalized(backend, written, accelerator)
    require(
        found is None or found.lower() == due,
        f"{written.text!r} on {accelerator.device_type} became {found!r}; due was {due!r}",
    )


@clause("PGN-3")
@given(number=accelerators, written=well_formed())
@example(number=0, written=Written("nccl", ((None, "nccl"),)))
@example(number=2, written=Written("cpu:gloo,cuda:nccl", (("cpu", "gloo"), ("cuda", "nccl"))))
def test_normalizing_twice_is_normalizing_once(backend: BackendUnderTest, number: int, written: Written) -> None:
    accelerator = _chosen(backend, number)
    _meant(written, accelerator)
    once = _normalized(backend, written, accelerator)
    assume(once is not None)
    twice = backend.normalizer(str(once), accelerator)
    require(twice == once, f"{written.text!r} on {accelerator.device_type} became {once!r}, and that became {twice!r}")


@clause("PGN-3")
@given(written=well_formed(spaces=False))
@example(written=Written("cpu:gloo,cuda:nccl", (("cpu", "gloo"), ("cuda", "nccl"))))
def test_on_cuda_pytorch_reads_the_same(backend: BackendUnderTest, written: Written) -> None:
    found = backend.normalizer(written.text, AnyCUDA())
    with model.registered_transports({**TRANSPORTS, **PLUGINS}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, after = model.pytorch_reads(written.text.strip()), model.pytorch_reads(found)
    require(before == after, f"{written.text!r} became {found!r} on CUDA, which PyTorch reads as {after} and not as {before}")


@clause("PGN-4", "PGN-5")
@given(number=accelerators, written=bare_names(st.sampled_from([*HOST_BACKENDS, *PLUGINS, "undefined", "mccl", "hccl", "xccl"])))
@example(number=0, written=Written("my_nccl_plugin", ((None, "my_nccl_plugin"),)))
@example(number=0, written=Written("xnccl", ((None, "xnccl"),)))
def test_any_other_backend_passes_through(backend: BackendUnderTest, number: int, written: Written) -> None:
    accelerator = _chosen(backend, number)
    found = backend.normalizer(written.text, accelerator)
    due = written.parts[0][1]
    require(found.strip().lower() == due, f"{written.text!r} on {accelerator.device_type} became {found!r}; due was {due!r}")


@clause("PGN-5")
@given(written=well_formed())
@example(written=Written("gloo", ((None, "gloo"),)))
@example(written=Written("my_nccl_plugin", ((None, "my_nccl_plugin"),)))
@example(written=Written("xnccl", ((None, "xnccl"),)))
@example(written=Written("mccl", ((None, "mccl"),)))
@example(written=Written("cuda:mccl", (("cuda", "mccl"),)))
@example(written=Written("cpu:gloo,musa:mccl", (("cpu", "gloo"), ("musa", "mccl"))))
@example(written=Written("cpu:nccl", (("cpu", "nccl"),)))
def test_detection_reads_the_parts(backend: BackendUnderTest, written: Written) -> None:
    from harness.process_group import normalizer

    due = model.holds_accelerator(written.parts, frozenset(TRANSPORTS))
    found = normalizer.is_accelerator_backend(written.text)
    require(found == due, f"is_accelerator_backend({written.text!r}) is {found}; due was {due}")


@st.composite
def malformed(draw: st.DrawFn) -> str:
    """A string with exactly one thing wrong."""
    device = st.sampled_from(DEVICES)
    good = draw(composites(spaces=False)).parts
    entry = draw(
        st.one_of(
            st.sampled_from(["", ":", "gloo", "nccl", "cuda", "cpu:gloo:nccl", "gpu:nccl", "cuda0:nccl", "device:gloo"]),
            device.map(lambda name: f"{name}:"),
            st.sampled_from(["gloo", "nccl"]).map(lambda name: f":{name}"),
            st.just(f"{good[0][0]}:{draw(st.sampled_from(['gloo', 'nccl']))}"),
        )
    )
    entries = [model.printed((part,)) for part in good]
    entries.insert(draw(st.integers(0, len(entries))), entry)
    return draw(cased(",".join(entries)))


@clause("PGN-6")
@given(number=accelerators, text=malformed())
@example(number=0, text="")
@example(number=0, text="   ")
@example(number=0, text=",")
@example(number=0, text="nccl,")
@example(number=0, text="cuda:")
@example(number=0, text=":nccl")
@example(number=0, text="gpu:nccl")
@example(number=0, text="gloo,nccl")
@example(number=0, text="cpu:gloo,nccl")
@example(number=0, text="cpu:gloo,,cuda:nccl")
@example(number=0, text="cuda:nccl,cuda:gloo")
@example(number=0, text="cuda:0:nccl")
def test_a_malformed_string_is_refused_with_itself_quoted(backend: BackendUnderTest, number: int, text: str) -> None:
    expect_refusal(backend.normalizer, text, _chosen(backend, number), errors=(ValueError,), quoting=text.strip())


@clause("PGN-6")
@given(number=st.integers(1, 5), transport_too=st.booleans(), logical_first=st.booleans())
def test_an_entry_that_conflicts_with_the_mapped_one_is_refused(
    backend: BackendUnderTest, number: int, transport_too: bool, logical_first: bool
) -> None:
    accelerator = _chosen(backend, number)
    assume(accelerator.device_type not in ("cuda", "cpu"))
    entries = ["cuda:nccl", f"{accelerator.device_type}:{accelerator.communication_backend_name if transport_too else 'gloo'}"]
    text = ",".join(entries if logical_first else reversed(entries))
    expect_refusal(backend.normalizer, text, accelerator, errors=(ValueError,), quoting=text)


@clause("PGN-7")
@given(number=accelerators, written=well_formed())
@example(number=2, written=Written("CPU:gloo,cuda:NCCL", (("cpu", "gloo"), ("cuda", "nccl"))))
@example(number=2, written=Written(" nccl", ((None, "nccl"),)))
@example(number=0, written=Written("fake", ((None, "fake"),)))
def test_pytorch_maps_each_device_as_the_model_says(backend: BackendUnderTest, number: int, written: Written) -> None:
    accelerator = _chosen(backend, number)
    meant = _meant(written, accelerator)
    found = _normalized(backend, written, accelerator)
    assume(found is not None)
    names = _names(accelerator)
    known = {**dict.fromkeys(HOST_BACKENDS, "cpu"), **TRANSPORTS, **PLUGINS, names.transport: names.device_type}
    with model.registered_transports(known):  # an earlier PyTorch does not have all of the host's
        due, read = model.devices_of(meant), model.pytorch_reads(str(found))
    require(
        read == due, f"{written.text!r} on {accelerator.device_type} became {found!r}, which PyTorch reads as {read}; due was {due}"
    )


@clause("PGN-8")
def test_new_group_normalizes_the_backend_wherever_it_stands(backend: BackendUnderTest) -> None:
    found = backend.in_child(programs.groups_of_a_world_of_one)
    due = dict.fromkeys(found, f"cpu:{programs.TRANSPORT}")
    due["another"] = "cpu:gloo"
    del due["undefined"], due["undefined, PyTorch alone"], due["world, none"]
    for way, config in due.items():
        actual = found[way] if way != "another" else found[way].split(",")[0]
        require(
            actual == config, f"a group whose backend was given {way!r} has the configuration {found[way]!r}; due was {config!r}"
        )
    require(
        found["undefined"] == found["undefined, PyTorch alone"],
        f"'undefined' came to {found['undefined']!r}; PyTorch's own detection comes to {found['undefined, PyTorch alone']!r}",
    )
    require(found["world, none"] == "undefined", f"a WORLD without a backend became {found['world, none']!r}, not 'undefined'")


@clause("PGN-9")
def test_weight_update_groups(backend: BackendUnderTest) -> None:
    from harness.process_group import normalizer

    for accelerator, due in ((MUSAAccelerator(), "cpu:gloo,musa:mccl"), (AnyCUDA(), "nccl")):
        for text in ("nccl", "NCCL", " nccl "):
            found = normalizer.weight_update_backend(text, accelerator)
            require(found == due, f"weight_update_backend({text!r}) on {accelerator.device_type} is {found!r}; due was {due!r}")
        for text in ("gloo", "mccl", "cpu:gloo,musa:mccl", "my_nccl_plugin"):
            found = normalizer.weight_update_backend(text, accelerator)
            require(
                found == text, f"weight_update_backend({text!r}) on {accelerator.device_type} is {found!r}; it must pass through"
            )


@clause("PGN-9")
def test_the_weight_update_backend_is_normal_already(backend: BackendUnderTest) -> None:
    for accelerator in _adapters(backend):
        due = accelerator.weight_update_backend()
        found = backend.normalizer(due, accelerator)
        require(found == due, f"normalizing the weight-update backend {due!r} of {accelerator.device_type} changed it to {found!r}")


@clause("PGN-9")
def test_the_device_id_of_a_world(backend: BackendUnderTest) -> None:
    from harness.process_group import normalizer

    for index, due in ((None, torch.device("cuda", 1)), (0, torch.device("cuda", 0)), ("cuda:1", torch.device("cuda", 1))):
        found = normalizer.distributed_device_id(index, AnyCUDA())
        require(found == due, f"distributed_device_id({index!r}) on CUDA is {found!r}; due was {due!r}")
        require(isinstance(found, torch.device), f"distributed_device_id({index!r}) on CUDA is a {type(found).__name__}")
    found = normalizer.distributed_device_id(None, MUSAAccelerator())
    require(found is None, f"distributed_device_id() on MUSA is {found!r}; MCCL takes none")


@clause("PGN-9", tier="device")
def test_the_device_id_of_the_backend(backend: BackendUnderTest) -> None:
    device_id = method(backend.accelerator, "distributed_device_id")
    for index in range(backend.device_count):
        found, due = device_id(index), method(backend.accelerator, "device")(index)
        require(found is None or found == due, f"distributed_device_id({index}) is {found!r}; due was {due!r}, or None")


@clause("PGN-10")
def test_the_patch_is_explicit_and_scoped(backend: BackendUnderTest) -> None:
    for observation, holds in backend.in_child(programs.the_patch).items():
        require(holds is True, f"patching torch.distributed: {observation!r} does not hold")
