"""STR: events, what waits for them, and what they measure."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import index_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require
from conformance.programs.stream_drafts import STREAM_WAITS, Focus, StreamDraft, stream_drafts
from conformance.programs.stream_program import StreamProgram
from conformance.programs.stream_steps import Allocate, Copy, HostRead, Kernel, Record, WaitEvent, WaitStream
from conformance.stream_runs import StreamRuns

SEEDS = st.integers(0, 1 << 16)
"""What a simulated machine draws its order from."""


@clause("STR-2", shrinks=False)
@given(draft=stream_drafts(Focus(kinds=("kernel", "kernel", "copy"), waits=STREAM_WAITS, streams=3, devices=1)), seed=SEEDS)
def test_a_stream_that_waited_sees_the_others_work(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)


@clause("STR-3", examples=0.7, shrinks=False)
@given(
    draft=stream_drafts(Focus(kinds=("kernel", "kernel", "record", "record"), waits=("wait_event",), streams=3, devices=1)),
    seed=SEEDS,
)
def test_a_wait_binds_to_the_last_record_before_it(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)


@clause("STR-3", examples=0.2, shrinks=False)
@given(seed=SEEDS)
def test_a_later_record_changes_nothing(stream_runs: StreamRuns, seed: int) -> None:
    """Were stream 1 to wait for the later record, it would wait for itself: stream 0 records it after waiting for stream 1."""
    steps = (
        Allocate("a", 0, 1),
        Record("e0", 0),
        WaitEvent(1, "e0"),
        Kernel(1, "a", 2, keep=True),
        WaitStream(0, 1),
        Record("e0", 0),
        Kernel(0, "a", 3, keep=True),
    )
    stream_runs.judge(StreamProgram((0, 0), steps), seed)


@clause("STR-4", examples=0.7, shrinks=False)
@given(
    draft=stream_drafts(Focus(kinds=("kernel", "kernel", "host_read"), waits=("poll event", "synchronize event"), streams=3)),
    seed=SEEDS,
)
def test_what_an_event_says_is_complete_is_complete(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)


@clause("STR-4")
def test_an_event_that_was_never_recorded_is_complete(backend: BackendUnderTest) -> None:
    accelerator = backend.accelerator
    for keywords in ({}, {"enable_timing": True}) if method(accelerator, "supports")("event_timing") else ({},):
        event = method(accelerator, "new_event")(**keywords)
        for moment in ("", " after synchronize()", " after a stream waited for it"):
            require(
                event.query() is True, f"query() of an event that was never recorded is {event.query()!r}{moment}; due was True"
            )
            event.synchronize()
        stream = method(accelerator, "new_stream")(0)
        stream.wait_event(event)
        stream.synchronize()


# Time


@clause("STR-8", examples=0.2)
@given(work=st.integers(1, 3), device=st.integers(0, 1), seed=SEEDS)
def test_elapsed_time_grows_with_the_work(stream_runs: StreamRuns, work: int, device: int, seed: int) -> None:
    backend = stream_runs.backend
    accelerator = backend.accelerator
    device %= backend.device_count
    for schedule in stream_runs.schedules(seed):
        if schedule is not None:
            backend.restart(schedule.name, schedule.seed)
        times = [_measure(stream_runs, work, device) for _ in range(1 if backend.is_fake else 3)]
        for first, rest, total, again in times:
            shown = (
                f"between three events, first {work} and then {8 * work} lengthy kernels apart: {first}, {rest}, both {total} ms"
            )
            require(first >= 0 and rest >= 0 and total >= 0, f"a time is negative {shown}")
            require(again == total or again >= 0, f"asked again, the time of both is {again} ms; first it was {total} ms")
            require(abs(first + rest - total) <= 0.01 + 0.01 * total, f"the parts do not add up {shown}")
        # Others may use a real device meanwhile, which makes a time longer, never shorter.
        first, rest = (min(one[part] for one in times) for part in (0, 1))
        require(
            rest > first > 0, f"{8 * work} lengthy kernels took {rest} ms, and {work} took {first} ms; due was more, and above 0"
        )
    method(accelerator, "set_device")(0)


def _measure(stream_runs: StreamRuns, work: int, device: int) -> tuple[float, float, float, float]:
    """Milliseconds between the first and second of three events, the second and third, and twice the first and third."""
    accelerator = stream_runs.backend.accelerator
    stream = method(accelerator, "new_stream")(device)
    with method(accelerator, "stream")(stream):
        stream_runs.executor.lengthen(device)  # whatever is set up at first use is not measured
        stream.synchronize()
        start, middle, end = (method(accelerator, "new_event")(enable_timing=True) for _ in range(3))
        start.record(stream)
        for _ in range(work):
            stream_runs.executor.lengthen(device)
        middle.record(stream)
        for _ in range(8 * work):
            stream_runs.executor.lengthen(device)
        end.record(stream)
    end.synchronize()
    return start.elapsed_time(middle), middle.elapsed_time(end), start.elapsed_time(end), start.elapsed_time(end)


@clause("STR-8")
def test_events_without_a_time_are_refused_each_with_its_own_message(backend: BackendUnderTest) -> None:
    accelerator = backend.accelerator
    stream = method(accelerator, "new_stream")(0)

    def event(timed: bool, recorded: bool) -> Any:
        made = method(accelerator, "new_event")(enable_timing=timed)
        if recorded:
            made.record(stream)
        return made

    timed, untimed, unrecorded = event(True, True), event(False, True), event(True, False)
    stream.synchronize()
    said: dict[str, set[str]] = {}
    for kind, pairs in {
        "untimed": ((timed, untimed), (untimed, timed)),
        "unrecorded": ((timed, unrecorded), (unrecorded, timed)),
    }.items():
        for first, second in pairs:
            refusal = expect_refusal(first.elapsed_time, second, errors=(ValueError, RuntimeError))
            said.setdefault(kind, set()).add(str(refusal).splitlines()[0])
    same = said["untimed"] & said["unrecorded"]
    require(not same, f"untimed and unrecorded events are refused with the same message: {', '.join(same)}")


@clause("STR-8", examples=0.2)
@given(seed=SEEDS)
def test_an_incomplete_event_has_no_time_or_is_waited_for(stream_runs: StreamRuns, seed: int) -> None:
    backend = stream_runs.backend
    accelerator = backend.accelerator
    for schedule in stream_runs.schedules(seed):
        if schedule is not None:
            backend.restart(schedule.name, schedule.seed)
        stream = method(accelerator, "new_stream")(0)
        start, end = (method(accelerator, "new_event")(enable_timing=True) for _ in range(2))
        with method(accelerator, "stream")(stream):
            start.record(stream)
            for _ in range(4):
                stream_runs.executor.lengthen(0)
            tensor = torch.full((4,), 5, device=method(accelerator, "device")(0)).neg_()
            end.record(stream)
        try:
            time = start.elapsed_time(end)
        except (ValueError, RuntimeError):
            end.synchronize()
            require(start.elapsed_time(end) > 0, "lengthy work took no time")
            continue
        require(time > 0, f"elapsed_time of lengthy work is {time} ms")
        found = tensor.cpu().tolist()
        require(end.query() and found == [-5] * 4, f"elapsed_time answered {time} ms before the event was complete")


# Several devices


@clause("STR-10", tier="multi-device", examples=0.5, shrinks=False)
@given(draft=stream_drafts(Focus(kinds=("kernel", "copy", "copy"), waits=STREAM_WAITS, both_devices=True)), seed=SEEDS)
def test_waiting_for_another_devices_event_orders_the_work(stream_runs: StreamRuns, draft: StreamDraft, seed: int) -> None:
    stream_runs.judge(draft, seed)


@clause("STR-10", tier="multi-device")
def test_an_event_is_not_recorded_on_another_devices_stream(stream_runs: StreamRuns) -> None:
    accelerator = stream_runs.backend.accelerator
    streams = [method(accelerator, "new_stream")(device) for device in (0, 1)]
    for own, other in ((0, 1), (1, 0)):
        for current in (0, 1):
            method(accelerator, "set_device")(current)
            event = method(accelerator, "new_event")()
            event.record(streams[own])
            expect_refusal(event.record, streams[other], errors=(ValueError, RuntimeError))
            device = getattr(event, "device", None)
            require(
                device is None or index_of(accelerator, device) == own,
                f"after a refused record on device {other}, the event of device {own} says that it is on {device}",
            )
            streams[other].wait_event(event)
            event.record(streams[own])
            event.synchronize()
    method(accelerator, "set_device")(0)


@clause("STR-10", tier="multi-device", examples=0.2, shrinks=False)
@given(seed=SEEDS)
def test_a_device_waits_for_the_other_both_ways(stream_runs: StreamRuns, seed: int) -> None:
    """One event each way, so that the smallest program with two devices is always among those run."""
    steps = (
        Allocate("a", 0, 1),
        Allocate("b", 1, 2),
        Kernel(0, "a", 7, slow=True),
        Record("e0", 0),
        WaitEvent(1, "e0"),
        Copy(1, "a", "b", other=2),
        Record("e1", 1),
        WaitEvent(0, "e1"),
        Kernel(0, "a", 9),
        HostRead("b", 1),
    )
    program = StreamProgram((0, 1, 0), steps)
    stream_runs.judge(program, seed)
