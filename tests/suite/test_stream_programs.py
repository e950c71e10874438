"""Stream programs as values, their oracle against a machine that tries every order, and the strategies that draw them."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from stream_interpreter import every_outcome

from conformance.errors import ProgramError
from conformance.models.happens_before import judge
from conformance.models.stream_orders import TooManyOrders, missing_waits, possible_readings
from conformance.programs.stream_drafts import MAX_WISHES, Focus, StreamDraft, stream_drafts
from conformance.programs.stream_program import MAX_STEPS, ScheduleChoice, StreamProgram
from conformance.programs.stream_steps import KINDS, Allocate, HostRead, Kernel, Record, WaitEvent

_MISSING_WAIT = StreamProgram(
    (0, 0), (Allocate("a", 0, 1), Record("e0", 0), WaitEvent(1, "e0"), Kernel(1, "a", 4, keep=True), HostRead("a", 1))
)
_small = settings(
    max_examples=150,
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def _short(draft: StreamDraft, steps: int = 7) -> StreamProgram:
    """The program of a draft's first wishes, at most `steps` steps."""
    for count in range(len(draft.wishes), -1, -1):
        shorter = StreamDraft(draft.focus, draft.streams, draft.spread, draft.default, draft.wishes[:count])
        program = shorter.program(2, pinned=True)
        if len(program.steps) <= steps:
            return program
    raise AssertionError("a draft without wishes makes an empty program")


@_small
@given(draft=stream_drafts(Focus(streams=3)))
def test_a_race_free_program_has_one_result_in_every_order(draft: StreamDraft) -> None:
    program = _short(draft)
    outcomes, racy = every_outcome(program)
    verdict = judge(program)
    assert not racy
    assert verdict.races == ()
    assert outcomes == {tuple(sorted(verdict.values.items()))}
    assert None not in verdict.values.values()


@_small
@given(draft=stream_drafts(Focus(streams=3, racy=True)))
def test_the_oracle_knows_races_and_what_they_leave_determined(draft: StreamDraft) -> None:
    program = _short(draft, 6)
    outcomes, racy = every_outcome(program)
    verdict = judge(program)
    assert bool(verdict.races) == racy
    for name, value in verdict.values.items():
        found = {dict(outcome)[name] for outcome in outcomes}
        assert value is None or found == {value}
    assert set(possible_readings(program)) == outcomes


@_small
@given(draft=stream_drafts(Focus(racy=True)))
def test_a_document_is_read_back_as_the_same_program(draft: StreamDraft) -> None:
    program = draft.program(2, pinned=True)
    assert StreamProgram.from_json(program.to_json()) == program
    assert "\n" not in program.to_json()
    scheduled = StreamProgram(program.streams, program.steps, program.default_streams, ScheduleChoice("seeded", 3))
    assert StreamProgram.from_document(json.loads(scheduled.to_json())) == scheduled


@settings(_small, max_examples=150, phases=[Phase.generate])
@given(draft=stream_drafts())
def test_drawn_programs_are_race_free_and_within_bounds(draft: StreamDraft) -> None:
    for devices in (1, 2):
        program = draft.program(devices, pinned=True)
        assert judge(program).races == ()
        assert len(program.steps) <= MAX_STEPS
        assert len(program.streams) <= 4
        assert program.devices <= devices
        assert len(draft.wishes) <= MAX_WISHES


def test_the_strategies_draw_every_kind_of_step_races_and_full_programs() -> None:
    kinds, lengths, racy = set(), [], []

    @settings(_small, max_examples=200, phases=[Phase.generate])
    @given(draft=stream_drafts(), other=stream_drafts(Focus(racy=True)))
    def draw(draft: StreamDraft, other: StreamDraft) -> None:
        program = draft.program(2, pinned=True)
        kinds.update(step.do for step in program.steps)
        lengths.append(len(program.steps))
        racy.append(bool(judge(other.program(2, pinned=True)).races))

    draw()
    assert kinds == set(KINDS)
    assert max(lengths) > 0.7 * MAX_STEPS
    assert sum(lengths) > 12 * len(lengths)
    assert 0.2 < sum(racy) / len(racy) < 0.9


@settings(_small, max_examples=60)
@given(draft=stream_drafts(Focus(waits=("wait_event", "wait_stream"), streams=3)))
def test_without_one_of_its_waits_a_program_is_racy_or_the_wait_was_not_needed(draft: StreamDraft) -> None:
    """The oracle sees a removed wait exactly where orders differ without it."""
    program = _short(draft)
    for number in range(len(program.steps)):
        without = StreamProgram(program.streams, program.steps[:number] + program.steps[number + 1 :])
        try:
            StreamProgram.from_document(without.to_document())
        except ProgramError:
            continue  # the step made a buffer that later ones use
        assert bool(judge(without).races) == every_outcome(without)[1]


def test_a_wrong_result_is_explained_by_the_wait_that_is_missing() -> None:
    due = judge(_MISSING_WAIT).values
    assert due == {"read in step 4": 3, "a at the end": 3}
    # The kernel's 4 - a ran first, on whatever was there, and then the fill.
    explanation = missing_waits(_MISSING_WAIT, {"read in step 4": None, "a at the end": 1})
    assert [one.step for one in explanation] == [2]
    order = explanation[0].order
    assert order.index((3, 1)) < order.index((0, 0))
    assert missing_waits(_MISSING_WAIT, {"read in step 4": 77, "a at the end": 78}) == []


def test_orders_are_counted_up_to_a_limit() -> None:
    steps = tuple(Allocate(f"b{number}", number % 4, number) for number in range(12))
    with pytest.raises(TooManyOrders):
        possible_readings(StreamProgram((0, 0, 0, 0), steps), limit=50)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("{", "line 1, column 2: not JSON"),
        ("[]", "the document: [] is not an object with program, streams, steps"),
        ('{"program": "streams/1", "streams": [0]}', "steps missing"),
        ('{"program": "x", "streams": [0], "steps": []}', "program: 'x' is not a format"),
        ('{"program": "streams/1", "streams": [], "steps": []}', "streams: 0 streams"),
        ('{"program": "streams/1", "streams": [-1], "steps": []}', "streams[0]: -1 is not a whole number from 0"),
        ('{"program": "streams/1", "streams": [0], "steps": [], "more": 1}', "more unknown"),
        ('{"program": "streams/1", "streams": [0, 0], "default_streams": [0, 1], "steps": []}', "two of them are on one device"),
        ('{"program": "streams/1", "streams": [0], "steps": [{"do": "fly"}]}', "steps[0].do: 'fly' is not a kind of step"),
        ('{"program": "streams/1", "streams": [0], "steps": [7]}', "steps[0].do: 7 is not"),
        ('{"program": "streams/1", "streams": [0], "steps": [{"do": "free"}]}', "steps[0]: buffer missing"),
        ('{"program": "streams/1", "streams": [0], "steps": [{"do": "free", "buffer": "a"}]}', "steps[0].buffer: no buffer 'a'"),
        ('{"program": "streams/1", "streams": [0], "steps": [{"do": "free", "buffer": 3}]}', "steps[0].buffer: 3 is not a name"),
        (
            '{"program": "streams/1", "streams": [0], "steps": [{"do": "record", "event": "e", "stream": 4}]}',
            "steps[0].stream: 4 is not one of the program's 1 streams",
        ),
        (
            '{"program": "streams/1", "streams": [0], "steps": [{"do": "synchronize_stream", "stream": 0, "poll": 1}]}',
            "steps[0].poll: 1 is neither true nor false",
        ),
        (
            '{"program": "streams/1", "streams": [0, 1], "steps": [{"do": "allocate", "buffer": "a", "stream": 0, "value": 1}, '
            '{"do": "kernel", "stream": 1, "write": "a", "value": 1}]}',
            "steps[1].write: 'a' is on device 0; due was one on device 1",
        ),
        (
            '{"program": "streams/1", "streams": [0, 1], "steps": [{"do": "record", "event": "e", "stream": 0}, '
            '{"do": "record", "event": "e", "stream": 1}]}',
            "steps[1].stream: event 'e' belongs to device 0",
        ),
        ('{"program": "streams/1", "streams": [0], "steps": [], "schedule": {"name": 1, "seed": 2}}', "schedule.name: 1"),
    ],
)
def test_a_wrong_document_says_what_is_wrong_where(document: str, text: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(text)):
        StreamProgram.from_json(document)


def test_a_listing_is_a_few_lines() -> None:
    assert repr(_MISSING_WAIT) == (
        "\ns0 on device 0; s1 on device 0\n"
        "  0  s0: a = full(1)\n"
        "  1  e0.record(s0)\n"
        "  2  s1.wait_event(e0)\n"
        "  3  s1: a = 4 - a\n"
        "  4  s1: read a.cpu()"
    )
