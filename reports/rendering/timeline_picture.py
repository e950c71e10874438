"""A timeline, drawn as SVG and written as a Chrome trace.

For: a failure's picture in the HTML, and the document that Perfetto opens. Not for: the text of a failure.
"""

from __future__ import annotations

from html import escape
from math import atan2, degrees
from typing import Any

from reports.model import Edge, Lane, Span, Timeline
from reports.rendering.lookup import xml_text

_LABEL, _LANE, _TOP, _BOX, _WIDEST = 84, 46, 30, 26, 116  # SVG units: lane titles, a lane, the first lane, a box, a step at most
_PAGE, _LEAST = 900, 34  # what a picture should not be wider than, and a step at least
_CHARACTER = 6.3
_COLOURS = {"work": ("#dbeafe", "#1d4ed8"), "record": ("#e9e5ff", "#5b21b6"), "wait": ("#f1f3f5", "#495057")}
_MISSING, _WAIT = "#c81e1e", "#5f6b76"
_MOST_SPANS = 400


def render_svg(timeline: Timeline) -> str:
    """One self-contained SVG element: a row a lane, time from left to right, an arrow a wait."""
    spans = timeline.spans[:_MOST_SPANS]
    if not spans or not timeline.lanes:
        return '<svg viewBox="0 0 300 24" role="img"><text x="4" y="16" font-size="12">an empty timeline</text></svg>'
    first, last = min(span.start for span in spans), max(span.end for span in spans)
    shortest = 1000 if timeline.in_steps else max(1, (last - first) / 16)
    scale = min(_WIDEST, max(_LEAST, (_PAGE - _LABEL) / max(1.0, (last - first) / shortest))) / shortest
    width = _LABEL + (last - first) * scale + 16
    height = _TOP + _LANE * len(timeline.lanes) + 8
    picture = _Picture(timeline, first, scale)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        'font-family="system-ui,DejaVu Sans,sans-serif" font-size="11" role="img">',
        "<title>timeline of a failing program</title>",
        *(picture.lane(number, lane, width) for number, lane in enumerate(timeline.lanes)),
        *(picture.ticks() if timeline.in_steps else ()),
        *(picture.span(span) for span in spans if span.lane < len(timeline.lanes)),
        *(picture.edge(edge) for edge in timeline.edges[:_MOST_SPANS] if max(edge.lane, edge.from_lane) < len(timeline.lanes)),
    ]
    return "\n".join([*parts, "</svg>"])


class _Picture:
    """Places on the page."""

    def __init__(self, timeline: Timeline, first: int, scale: float) -> None:
        self._timeline = timeline
        self._first = first
        self._scale = scale

    def _x(self, time: int) -> float:
        return _LABEL + (time - self._first) * self._scale

    def lane(self, number: int, lane: Lane, width: float) -> str:
        middle = _TOP + _LANE * number + _LANE / 2
        device = "" if lane.device is None else f' <tspan fill="#57606a">device {lane.device}</tspan>'
        line = f'<line x1="{_LABEL - 4}" x2="{width - 8:.0f}" y1="{middle:g}" y2="{middle:g}" stroke="#d8dee4"/>'
        return f'{line}<text x="2" y="{middle + 4:g}">{escape(xml_text(lane.title))}{device}</text>'

    def ticks(self) -> list[str]:
        steps = sorted({span.start // 1000 for span in self._timeline.spans[:_MOST_SPANS]})
        middle = 400 * self._scale
        return [
            f'<text x="{self._x(step * 1000) + middle:.1f}" y="14" text-anchor="middle" fill="#57606a">{step}</text>'
            for step in steps
        ]

    def span(self, span: Span) -> str:
        left, top = self._x(span.start), _TOP + _LANE * span.lane + (_LANE - _BOX) / 2
        wide = max(2.0, (span.end - span.start) * self._scale)
        fill, ink = _COLOURS[span.kind]
        name = xml_text(span.name)
        ran = "" if span.ran is None else f", ran as number {span.ran}"
        room = int((wide - 6) / _CHARACTER)
        shown = name if len(name) <= room else name[: max(0, room - 1)] + "…" if room > 2 else ""
        box = f'<rect x="{left:.1f}" y="{top:g}" width="{wide:.1f}" height="{_BOX}" rx="4" fill="{fill}" stroke="{ink}"/>'
        label = f'<text x="{left + wide / 2:.1f}" y="{top + 17:g}" text-anchor="middle" fill="{ink}">{escape(shown)}</text>'
        return f"<g><title>{escape(name + ran)}</title>{box}{label if shown else ''}</g>"

    def edge(self, edge: Edge) -> str:
        from_y, to_y = (_TOP + _LANE * lane + _LANE / 2 for lane in (edge.from_lane, edge.lane))
        down = (_BOX / 2) if to_y >= from_y else -(_BOX / 2)
        left, top, right, bottom = self._x(edge.start), from_y + down, self._x(edge.end), to_y - down
        colour = _MISSING if edge.missing else _WAIT
        look = ' stroke-width="2" stroke-dasharray="5 3"' if edge.missing else ""
        title = "a wait that had no effect" if edge.missing else "a wait"
        line = f'<path d="M{left:.1f} {top:g}L{right:.1f} {bottom:g}" fill="none" stroke="{colour}"{look}/>'
        turn = degrees(atan2(bottom - top, right - left))
        head = f'<path d="M0 0L-9 -4.5L-9 4.5Z" fill="{colour}" transform="translate({right:.1f} {bottom:g}) rotate({turn:.1f})"/>'
        return f"<g><title>{title}</title>{line}{head}</g>"


def chrome_trace(timeline: Timeline) -> dict[str, Any]:
    """The document that Perfetto and `chrome://tracing` read: a process a device, a thread a lane, an arrow a wait. A step is drawn as a
    millisecond."""
    to_microseconds = 1.0 if timeline.in_steps else 0.001
    places = [{"pid": 0 if lane.device is None else lane.device + 1, "tid": number} for number, lane in enumerate(timeline.lanes)]
    events: list[dict[str, Any]] = []
    for lane, place in zip(timeline.lanes, places, strict=True):
        process = "host" if lane.device is None else f"device {lane.device}"
        events.append({"ph": "M", "name": "process_name", **place, "args": {"name": process}})
        events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": lane.title}})
    for span in timeline.spans:
        if span.lane < len(places):
            length = (span.end - span.start) * to_microseconds
            times = {"ts": span.start * to_microseconds, "dur": length}
            ran = {} if span.ran is None else {"ran": span.ran}
            events.append({"ph": "X", "name": span.name, "cat": span.kind, **times, **places[span.lane], "args": ran})
    for number, edge in enumerate(timeline.edges):
        if max(edge.lane, edge.from_lane) < len(places):
            common = {"name": "missing wait" if edge.missing else "wait", "cat": "wait", "id": number}
            events.append({"ph": "s", "ts": edge.start * to_microseconds, **places[edge.from_lane], **common})
            events.append({"ph": "f", "bp": "e", "ts": edge.end * to_microseconds, **places[edge.lane], **common})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
