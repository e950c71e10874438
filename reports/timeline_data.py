"""From the suite's programs, timelines and layouts to the report's.

For: plain data as checks attach it to a failure. Data that does not fit is left out, since a picture is worth less than the failure that
it shows. Not for: drawing.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from reports.model import Edge, Lane, LayoutPicture, Span, Timeline

_SLOT, _LENGTH, _FROM, _TO = 1000, 800, 700, 750  # thousandths of a step: between starts, of a box, and where arrows begin and end


def timeline_from(data: Any) -> Timeline | None:
    """The timeline of a program: `lanes`, `boxes` at their step, `arrows`, as `conformance.timeline` gives them; None where it has another
    form."""
    try:
        place = {lane["lane"]: number for number, lane in enumerate(data["lanes"])}
        return Timeline(
            in_steps=True,
            lanes=tuple(Lane(title=lane["title"], device=lane["device"]) for lane in data["lanes"]),
            spans=tuple(
                Span(
                    lane=place[box["lane"]],
                    name=box["label"],
                    kind=box["kind"],
                    start=box["step"] * _SLOT,
                    end=box["step"] * _SLOT + _LENGTH,
                    ran=box["ran"],
                )
                for box in data["boxes"]
                if box["lane"] in place
            ),
            edges=tuple(
                Edge(
                    from_lane=place[arrow["from_lane"]],
                    start=arrow["from_step"] * _SLOT + _FROM,
                    lane=place[arrow["lane"]],
                    end=arrow["step"] * _SLOT + _TO,
                    missing=arrow["missing"],
                )
                for arrow in data["arrows"]
                if arrow["lane"] in place and arrow["from_lane"] in place
            ),
        )
    except (KeyError, TypeError, ValidationError):
        return None


def program_text(document: Any) -> str:
    """A program's document as a person reads it: its listing; empty where it is no program that is known here."""
    from conformance.errors import ProgramError
    from conformance.programs.stream_program import StreamProgram

    try:
        return "\n".join(StreamProgram.from_document(document).listing())
    except ProgramError:
        return ""


def layout_from(data: Any) -> LayoutPicture | None:
    """The layout of a routed-experts case; None where it is too large to draw or has another form."""
    try:
        return LayoutPicture.model_validate_json(json.dumps(data))
    except (TypeError, ValueError):
        return None
