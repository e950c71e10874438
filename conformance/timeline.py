"""A stream program as a picture: who was given what, who waits for whom, and where a wait had no effect.

For: the text of a failure, and the same as data for pictures (`to_data`) and for trace viewers (`to_chrome_trace`). Not for: deciding what
failed (`programs/stream_check.py`) or drawing (`reports`).

    step  host                 s0                   s1
       0                       a = full(1)
       1                       e0.record
       2                                            wait_event(e0)  <- step 1
       3                                            a = 4 - a
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.models.stream_actions import HOST_LANE, Launch, Lowering, Mark, Token, Wait
from conformance.models.stream_orders import Order
from conformance.programs.stream_program import StreamProgram

_SLOT = 1000.0  # microseconds between steps in a trace, which has no other time
_FREE_LANES = 1000


@dataclass(frozen=True)
class Box:
    """What one step does on one lane. `kind` is `work`, `record` or `wait`; `ran` is the place in the order in which launches ran, where
    that is known."""

    step: int
    lane: int
    label: str
    kind: str
    ran: int | None = None


@dataclass(frozen=True)
class Edge:
    """A wait: what comes after `step` on `lane` comes after what was before `from_step` on `from_lane`; `missing` where it had no
    effect."""

    from_step: int
    from_lane: int
    step: int
    lane: int
    missing: bool = False


@dataclass(frozen=True)
class Timeline:
    """Lanes by their number, HOST_LANE first, with what each was given, in the order of issue."""

    lanes: dict[int, str]
    devices: dict[int, int]
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    order: Order = field(default=())

    def text(self) -> list[str]:
        """A table, a row for each step, and a column for each lane; then the order in which launches ran, where it is known."""
        rows: dict[int, dict[int, list[str]]] = {}
        for box in self.boxes:
            rows.setdefault(box.step, {}).setdefault(box.lane, []).append(box.label)
        for edge in self.edges:
            arrow = f"<- step {edge.from_step}" if edge.from_step != edge.step else f"<- {self.lanes[edge.from_lane]}"
            cell = rows.setdefault(edge.step, {}).setdefault(edge.lane, [])
            if arrow not in cell:
                cell.append(arrow + (" (NO EFFECT)" if edge.missing else ""))
        cells = {step: {lane: "  ".join(dict.fromkeys(parts)) for lane, parts in row.items()} for step, row in rows.items()}
        widths = {
            lane: max([len(title), *(len(row.get(lane, "")) for row in cells.values())]) for lane, title in self.lanes.items()
        }
        lines = [_row("step", self.lanes, widths)]
        lines += [_row(str(step), row, widths) for step, row in sorted(cells.items())]
        if self.order:
            ran = dict.fromkeys(f"{step} ({self.lanes.get(lane, 'free')})" for step, lane in self.order)
            lines.append(f"an order of work that gives these values, by step: {', '.join(ran)}")
        return lines

    def to_data(self) -> dict[str, Any]:
        """Plain data for a picture: lanes from top to bottom, boxes at their step from left to right, arrows between boxes."""
        return {
            "lanes": [{"lane": lane, "title": title, "device": self.devices.get(lane)} for lane, title in self.lanes.items()],
            "boxes": [vars(box) for box in self.boxes],
            "arrows": [vars(edge) for edge in self.edges],
            "order": [list(launch) for launch in self.order],
        }

    def to_chrome_trace(self) -> dict[str, Any]:
        """The document that `chrome://tracing` and Perfetto read: a process a device, a thread a stream, an arrow a wait. Time is the
        number of the step, a millisecond each, since a program has no other."""
        events: list[dict[str, Any]] = []
        for lane, title in self.lanes.items():
            place = self._place(lane)
            events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": title}})
            device = self.devices.get(lane)
            name = "host" if device is None else f"device {device}"
            events.append({"ph": "M", "name": "process_name", **place, "args": {"name": name}})
        for box in self.boxes:
            events.append(
                {
                    "ph": "X",
                    "name": box.label,
                    "cat": box.kind,
                    "ts": box.step * _SLOT,
                    "dur": _SLOT * 0.8,
                    **self._place(box.lane),
                    "args": {"step": box.step, "ran": box.ran},
                }
            )
        for number, edge in enumerate(self.edges):
            common = {"name": "missing wait" if edge.missing else "wait", "cat": "wait", "id": number}
            start, end = edge.from_step * _SLOT + _SLOT * 0.7, edge.step * _SLOT + _SLOT * 0.75
            events.append({"ph": "s", "ts": start, **self._place(edge.from_lane), **common})
            events.append({"ph": "f", "bp": "e", "ts": end, **self._place(edge.lane), **common})
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def _place(self, lane: int) -> dict[str, int]:
        return {"pid": self.devices.get(lane, -1) + 1, "tid": lane + 1}


def timeline_of(program: StreamProgram, missing: Sequence[int] = (), order: Order = ()) -> Timeline:
    """The timeline of a program. `missing` are the steps whose waits had no effect (the number of steps is the final wait); `order` is how
    launches ran, where that is known."""
    lowering = Lowering(program.streams)
    lanes = {HOST_LANE: "host"} | {stream: f"s{stream}" for stream in range(len(program.streams))}
    devices = dict(enumerate(program.streams))
    boxes: list[Box] = []
    edges: list[Edge] = []
    marks: dict[Token, Mark] = {}
    for number, step in enumerate(program.steps):
        own = Box(number, _lane_of(step), str(step).partition(": ")[2] if ": " in str(step) else str(step), _kind_of(step))
        boxes.append(Box(own.step, own.lane, own.label, own.kind, _ran(order, number)))
        _add_edges(lowering.actions(number, step), missing, marks, edges)
    last = len(program.steps)
    boxes.append(Box(last, HOST_LANE, "wait for all, read all", "wait", _ran(order, last)))
    _add_edges(lowering.final_actions(last), missing, marks, edges)
    return Timeline(lanes, devices, tuple(boxes), tuple(dict.fromkeys(edges)), order)


def _add_edges(
    actions: Sequence[Launch | Mark | Wait], missing: Sequence[int], marks: dict[Token, Mark], edges: list[Edge]
) -> None:
    for action in actions:
        if isinstance(action, Mark):
            marks[action.token] = action
        elif isinstance(action, Wait) and action.lane < _FREE_LANES:
            mark = marks[action.token]
            edges.append(Edge(mark.step, mark.lane, action.step, action.lane, action.step in missing))


def _lane_of(step: Any) -> int:
    """The lane that a step's box is on: its stream's, else the host's."""
    stream = getattr(step, "stream", None)
    return HOST_LANE if stream is None or step.do in ("synchronize_stream", "record_stream") else int(stream)


def _kind_of(step: Any) -> str:
    kind = step.do.partition("_")[0]
    return kind if kind in ("record", "wait") and step.do != "record_stream" else "wait" if kind == "synchronize" else "work"


def _ran(order: Order, number: int) -> int | None:
    return next((place for place, (step, _lane) in enumerate(order) if step == number), None)


def _row(head: str, cells: dict[int, str], widths: dict[int, int]) -> str:
    return f"{head:>4}  " + "  ".join(f"{cells.get(lane, ''):<{width}}" for lane, width in widths.items()).rstrip()
