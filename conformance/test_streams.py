"""STR: streams, their contexts, copies and the host's waits; events are in `test_events.py`, programs in `test_stream_programs.py`."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import device_type_of, index_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require
from conformance.gating import denial_evidence
from conformance.programs.device_forms import DeviceForm, forms
from conformance.programs.stream_contexts import ContextProgram, context_programs
from conformance.programs.stream_drafts import HOST_WAITS, Focus, StreamDraft, stream_drafts
from conformance.programs.stream_typical import copies_that_the_host_waits_for, waits_for_another_devices_stream
from conformance.stream_runs import StreamRuns

SEEDS = st.integers(0, 1 << 16)
"""What a simulated machine draws its order from."""


@clause("STR-1", examples=0.5, shrinks=False)
@given(draft=stream_drafts(Focus(kinds=("kernel", "kernel", "copy", "host_read"), waits=HOST_WAITS[1:3], streams=1)), seed=SEEDS)
def test_work_on_one_stream_runs_in_the_order_of_issue(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)


@clause("STR-5")
@given(program=context_programs)
def test_a_stream_context_is_current_inside_and_undone_on_every_exit(backend: BackendUnderTest, program: ContextProgram) -> None:
    program.run(backend.accelerator, min(2, backend.device_count))


@clause("STR-5")
def test_work_inside_a_context_goes_to_its_stream(stream_runs: StreamRuns) -> None:
    backend = stream_runs.backend
    accelerator = backend.accelerator
    for device in range(min(2, backend.device_count)):
        for schedule in stream_runs.schedules(device):
            if schedule is not None:
                backend.restart(schedule.name, schedule.seed)
            method(accelerator, "set_device")(0)
            stream = method(accelerator, "new_stream")(device)
            with method(accelerator, "stream")(stream):
                stream_runs.executor.lengthen(device)
                tensor = torch.full((4,), 3, device=method(accelerator, "device")(device))
                tensor.add_(4)
            stream.synchronize()
            found = tensor.cpu().tolist()
            require(found == [7] * 4, f"after stream.synchronize(), work issued within its context gave {found}; due was 7")


@clause("STR-6")
def test_a_busy_stream_is_asked_while_an_idle_one_is_current(stream_runs: StreamRuns) -> None:
    devices = min(2, stream_runs.backend.device_count)
    stream_runs.judge_typical(waits_for_another_devices_stream(devices, pinned=stream_runs.has_pinned_memory))


@clause("STR-6")
@given(form=forms, current=st.integers(0, 3), within=st.integers(0, 3))
def test_every_form_of_a_device_gives_its_current_stream(
    backend: BackendUnderTest, form: DeviceForm, current: int, within: int
) -> None:
    accelerator = backend.accelerator
    count = int(method(accelerator, "device_count")())
    current, within = current % count, within % count
    before = [method(accelerator, "current_stream")(device) for device in range(min(count, 4))]
    stream = method(accelerator, "new_stream")(within)
    try:
        with method(accelerator, "stream")(stream):
            method(accelerator, "set_device")(current)
            device = form.local_index(current, count)
            value = form.value(device_type_of(accelerator), count)
            found = method(accelerator, "current_stream")(value)
            due = stream if device == within else before[device] if device < len(before) else found
            asked = f"current_stream({value!r}) while device {current} is current, within a stream of device {within},"
            require(found == due, f"{asked} is {found}; due was {due}")
            on = index_of(accelerator, found.device)
            require(on == device, f"{asked} is a stream of device {on}; due was {device}")
    finally:
        method(accelerator, "set_device")(0)


@clause("STR-6")
@given(form=forms, current=st.integers(0, 3))
def test_the_default_stream_is_the_same_at_every_call(backend: BackendUnderTest, form: DeviceForm, current: int) -> None:
    accelerator = backend.accelerator
    count = int(method(accelerator, "device_count")())
    current %= count
    device = form.local_index(current, count)
    value = form.value(device_type_of(accelerator), count)
    method(accelerator, "set_device")(device)
    try:
        first = _default_stream(accelerator, device)
        if first is None:
            return
        other = method(accelerator, "new_stream")(device)
        method(accelerator, "set_device")(current)
        with method(accelerator, "stream")(other):
            method(accelerator, "set_device")(current)
            again = _default_stream(accelerator, value)
        asked = f"default_stream({value!r}) while device {current} is current and a stream of device {device} is too"
        require(again == first, f"{asked} is {again}; before it was {first}")
        require(first not in {other}, f"a new stream of device {device} is its default stream")
        require(index_of(accelerator, first.device) == device, f"default_stream({device}) says that it is on {first.device}")
    finally:
        method(accelerator, "set_device")(0)


def _default_stream(accelerator: Any, device: Any) -> Any | None:
    """The default stream, or None where the backend exposes none."""
    try:
        return method(accelerator, "default_stream")(device)
    except NotImplementedError:
        return None


@clause("STR-6", examples=0.5, shrinks=False)
@given(
    draft=stream_drafts(
        Focus(
            kinds=("kernel", "kernel", "set_device", "set_device", "host_read"),
            waits=("synchronize stream", "poll stream"),
            both_devices=True,
        )
    ),
    seed=SEEDS,
)
def test_a_stream_is_asked_from_any_device(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)


@clause("STR-7", examples=0.5, shrinks=False)
@given(
    draft=stream_drafts(
        Focus(kinds=("kernel", "kernel", "copy", "set_device", "host_read"), waits=("synchronize device",), both_devices=True)
    ),
    seed=SEEDS,
)
def test_a_synchronized_device_is_idle(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)


@clause("STR-7", examples=0.3)
@given(form=forms, current=st.integers(0, 3), seed=SEEDS)
def test_every_form_of_a_device_is_synchronized(stream_runs: StreamRuns, form: DeviceForm, current: int, seed: int) -> None:
    backend = stream_runs.backend
    accelerator = backend.accelerator
    count = int(method(accelerator, "device_count")())
    current %= count
    device, value = form.local_index(current, count), form.value(device_type_of(accelerator), count)
    has_streams = bool(method(accelerator, "supports")("streams"))
    for schedule in stream_runs.schedules(seed):
        if schedule is not None:
            backend.restart(schedule.name, schedule.seed)
        method(accelerator, "set_device")(0)
        where = method(accelerator, "device")(device)
        streams = [method(accelerator, "new_stream")(device) for _ in range(2)] if has_streams else []
        tensors = []
        for stream in streams:
            with method(accelerator, "stream")(stream):
                stream_runs.executor.lengthen(device)
                tensors.append(torch.full((4,), 3, device=where).neg_())
        method(accelerator, "set_device")(current)
        tensors.append(torch.full((4,), 3, device=where).neg_())
        method(accelerator, "synchronize")(value)
        asked = f"after synchronize({value!r}) with device {current} current"
        for number, stream in enumerate(streams):
            require(stream.query(), f"{asked}, stream {number} of device {device} is still busy")
        method(accelerator, "set_device")(0)
        for tensor in tensors:
            found = tensor.cpu().tolist()
            require(found == [-3] * 4, f"{asked}, work that was issued before on device {device} gives {found}; due was -3")


@clause("STR-9")
def test_a_copy_with_the_host_is_done_once_it_was_waited_for(stream_runs: StreamRuns) -> None:
    for pinned in {False, stream_runs.has_pinned_memory}:
        stream_runs.judge_typical(copies_that_the_host_waits_for(pinned=pinned))


@clause("STR-9", examples=0.7, shrinks=False)
@given(
    draft=stream_drafts(
        Focus(
            kinds=("copy", "copy", "copy", "host_write", "host_write", "host_read", "kernel", "free"),
            waits=HOST_WAITS[1:],
            streams=2,
        )
    ),
    seed=SEEDS,
)
def test_copies_are_ordered_and_visible_once_waited_for(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)


@clause("STR-13")
def test_streams_are_there_or_refused(backend: BackendUnderTest) -> None:
    accelerator = backend.accelerator
    supported = method(accelerator, "supports")("streams")
    current = method(accelerator, "current_stream")()
    if supported:
        require(current is not None, "supports('streams') is true, but current_stream() is None")
        with method(accelerator, "stream")(current):
            pass
        return
    evidence = denial_evidence(backend, "streams")
    require(current is None, f"supports('streams') is false ({evidence}), but current_stream() is {current!r}; due was None")
    for name, arguments in (("stream", (None,)), ("stream", (object(),)), ("new_stream", ())):
        expect_refusal(method(accelerator, name), *arguments, errors=(NotImplementedError,))
