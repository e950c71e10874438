"""What a failing stream program leaves behind: a small program, a listing, a timeline, and a document that fails again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from suite_runner import SuiteRun

from conformance.models.happens_before import judge
from conformance.programs.stream_program import StreamProgram
from conformance.programs.stream_shrinking import smallest_program
from conformance.programs.stream_steps import Allocate, HostRead, Kernel, Record, SetDevice, SynchronizeDevice, WaitEvent
from conformance.timeline import timeline_of

_DOCUMENT = re.compile(r"--replay-program='(\{.*?\})'$", re.MULTILINE)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("str-wait-event-ignored", "test_stream_programs.py::test_a_race_free_program_gives_what_its_order_implies"),
        ("str-wait-binds-to-first", "test_events.py::test_a_wait_binds_to_the_last_record_before_it"),
        ("str-copy-engine-apart", "test_streams.py::test_copies_are_ordered_and_visible_once_waited_for"),
    ],
)
def test_a_failure_is_small_and_fails_again(suite: Callable[..., SuiteRun], fault: str, check: str) -> None:
    options = ("--backend=fake-musa", f"--fault={fault}")
    run = suite(*options, "--hypothesis-seed=1", f"conformance/{check}")
    assert run.exit_code == 1, run.output
    found = _DOCUMENT.search(run.output.replace("E       ", ""))
    assert found is not None, run.output
    program = StreamProgram.from_json(found.group(1))
    assert len(program.steps) <= 8
    assert judge(program).races == ()
    for line in program.listing():
        assert line in run.output
    again = suite(*options, f"--replay-program={found.group(1)}")
    assert again.exit_code == 1, again.output
    assert "FAILED on fake-musa" in again.output
    assert suite("--backend=fake-musa", f"--replay-program={found.group(1)}").exit_code == 0


def test_a_missing_wait_is_explained_by_step_and_decision(suite: Callable[..., SuiteRun]) -> None:
    steps = (Allocate("a", 0, 1), Record("e0", 0), WaitEvent(1, "e0"), Kernel(1, "a", 4, keep=True))
    document = StreamProgram((0, 0), steps).to_json()
    run = suite("--backend=fake-musa", "--fault=str-wait-event-ignored", "--schedule=directed", f"--replay-program={document}")
    assert run.exit_code == 1
    assert "as if step 2, `s1.wait_event(e0)` did not wait" in run.output
    assert "<- step 1 (NO EFFECT)" in run.output
    assert re.search(r"launch 0, `\w+` on s0, is held back", run.output), run.output


def test_shrinking_keeps_what_fails_and_drops_the_rest() -> None:
    steps = (
        SetDevice(0),
        Allocate("a", 0, 1),
        Allocate("b", 2, 2),
        Record("e0", 0),
        WaitEvent(1, "e0"),
        Kernel(1, "a", 4, keep=True, slow=True),
        SynchronizeDevice(0),
        HostRead("a", 1),
    )

    def fails(program: StreamProgram) -> StreamProgram | None:
        """As if a kernel on the second stream always went wrong."""
        return program if any(isinstance(step, Kernel) and step.stream == 1 for step in program.steps) else None

    program = StreamProgram((0, 0, 0), steps, default_streams=(2,))
    smallest = smallest_program(program, program, fails)
    assert smallest.steps == (Allocate("a", 0, 1), Record("e0", 0), WaitEvent(1, "e0"), Kernel(1, "a", 4, keep=True))
    assert smallest.streams == (0, 0)
    assert smallest.default_streams == ()


def test_a_timeline_is_a_table_data_and_a_trace() -> None:
    steps = (Allocate("a", 0, 1), Record("e0", 0), WaitEvent(1, "e0"), Kernel(1, "a", 4, keep=True), HostRead("a", 1))
    timeline = timeline_of(StreamProgram((0, 0), steps), missing=[2], order=((3, 1), (0, 0)))
    assert timeline.text() == [
        "step  host                                  s0             s1",
        "   0                                        a = full(1)",
        "   1                                        e0.record(s0)",
        "   2                                                       s1.wait_event(e0)  <- step 1 (NO EFFECT)",
        "   3                                                       a = 4 - a",
        "   4  <- s1                                                read a.cpu()",
        "   5  wait for all, read all  <- s0  <- s1",
        "an order of work that gives these values, by step: 3 (s1), 0 (s0)",
    ]
    data = timeline.to_data()
    assert json.loads(json.dumps(data)) == data
    assert [lane["title"] for lane in data["lanes"]] == ["host", "s0", "s1"]
    assert [arrow["missing"] for arrow in data["arrows"]].count(True) == 1
    assert {box["step"]: box["ran"] for box in data["boxes"]}[3] == 0
    trace = timeline.to_chrome_trace()
    assert json.loads(json.dumps(trace)) == trace
    kinds = [event["ph"] for event in trace["traceEvents"]]
    assert kinds.count("X") == len(steps) + 1
    assert kinds.count("s") == kinds.count("f") == len(data["arrows"])
    assert all(event["ts"] >= 0 for event in trace["traceEvents"] if "ts" in event)
