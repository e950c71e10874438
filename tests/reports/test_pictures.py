"""What a failing check brings along, drawn: timelines of programs, traces, layouts."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from report_factory import make_layout, make_timeline

from conformance.errors import ClauseViolation
from conformance.models.routed_experts import LayoutSizes
from conformance.programs.stream_check import ProgramViolation
from conformance.programs.stream_drafts import Focus, StreamDraft, stream_drafts
from conformance.recording import ExampleCounter, shown_by
from conformance.routed_expert_cases import Case
from conformance.timeline import timeline_of
from reports.model import Lane, LayoutPicture, Span, Timeline
from reports.rendering import html
from reports.rendering.timeline_picture import chrome_trace, render_svg
from reports.timeline_data import layout_from, program_text, timeline_from

_SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{_SVG}text")]


@settings(max_examples=60, database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(draft=stream_drafts(Focus(streams=3, racy=True)))
def test_every_programs_timeline_can_be_drawn_and_traced(draft: StreamDraft) -> None:
    program = draft.program(2, pinned=True)
    missing = range(len(program.steps) + 1)
    data = timeline_of(program, missing).to_data()
    timeline = timeline_from(data)
    assert timeline is not None
    assert [lane.title for lane in timeline.lanes] == ["host", *(f"s{stream}" for stream in range(len(program.streams)))]
    assert len(timeline.spans) == len(program.steps) + 1
    svg = render_svg(timeline)
    shown = texts(svg)
    for lane in timeline.lanes:
        assert any(text.startswith(lane.title) for text in shown)
    assert svg.count("a wait that had no effect") == sum(edge.missing for edge in timeline.edges)
    events = chrome_trace(timeline)["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == len(timeline.spans)
    assert sum(event["ph"] == "s" for event in events) == sum(event["ph"] == "f" for event in events) == len(timeline.edges)
    assert program_text(program.to_document()) == "\n".join(program.listing())


def test_a_violation_brings_its_program_and_timeline() -> None:
    @settings(max_examples=1, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(draft=stream_drafts())
    def one(draft: StreamDraft) -> None:
        program = draft.program(1, pinned=False)
        shown = shown_by(ProgramViolation(program, "wrong", {}, "again: …"))
        assert shown["program"] == program.to_document()
        assert timeline_from(shown["timeline"]) is not None

    one()
    assert shown_by(ValueError("x")) == {}


def test_a_failing_case_brings_its_layout() -> None:
    case = Case(LayoutSizes(2, 2, 1, True, False), (6, 3), 1, 2, 4)

    @settings(max_examples=1, database=None)
    @given(draft=stream_drafts())
    def check(draft: StreamDraft, case: Case = case) -> None:
        raise ClauseViolation("wrong")

    handle: Any = check
    with ExampleCounter().counting(check), pytest.raises(ClauseViolation) as violation:
        handle.hypothesis.inner_test(draft=None, case=case)
    layout = layout_from(shown_by(violation.value)["layout"])
    assert layout == make_layout()


@pytest.mark.parametrize(
    "data", [None, {}, {"lanes": 1}, {"lanes": [{"lane": 0, "title": "host", "device": None}], "boxes": [{}], "arrows": []}]
)
def test_a_picture_of_another_form_is_left_out(data: Any) -> None:
    assert timeline_from(data) is None
    assert layout_from(data) is None
    assert program_text(data) == ""


def test_odd_timelines_are_drawn_too() -> None:
    empty = Timeline(in_steps=True, lanes=(), spans=(), edges=())
    assert "an empty timeline" in render_svg(empty)
    wide = Timeline(
        in_steps=False,
        lanes=(Lane(title="<host> & \x00"),),
        spans=tuple(Span(lane=0, name="k" * 300, kind="work", start=n * 5_000_000, end=n * 5_000_000 + 10) for n in range(900)),
        edges=(),
    )
    svg = render_svg(wide)
    ElementTree.fromstring(svg)
    assert len(svg) < 600_000
    assert chrome_trace(wide)["traceEvents"][2]["dur"] == 0.01
    beyond = make_timeline().model_copy(update={"lanes": make_timeline().lanes[:1]})
    ElementTree.fromstring(render_svg(beyond))
    assert len(chrome_trace(beyond)["traceEvents"]) == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "<svg"),
        ({"sequences": ()}, "<svg"),
        ({"tensor_parallel_size": 64, "context_parallel_size": 64}, "64 × 64 ranks are too many to draw."),
        ({"data_pad_size_multiplier": 1 << 20, "sequences": (1 << 24,) * 64}, "<svg"),
    ],
)
def test_layouts_are_drawn_or_said_to_be_too_large(changes: dict[str, Any], says: str) -> None:
    layout = LayoutPicture.model_validate({**make_layout().model_dump(), **changes})
    drawn = str(html._layout_svg(layout))
    assert says in drawn
    assert len(drawn) < 200_000
