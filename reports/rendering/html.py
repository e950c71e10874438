"""`report.html`: the report for people, in one file that fetches nothing.

For: any browser, from a phone to paper, without a server. Everything that the report says is escaped. Not for: the pictures
(`timeline_picture.py`, `reports.layout_picture`).
"""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from reports.model import LayoutPicture, Report, Timeline
from reports.rendering import timeline_picture
from reports.rendering.lookup import checks_by_name, checks_of, rows_by_area, what_was_said

_OPENED = ("fail", "flaky", "harness-error", "known-failure", "waived")
"""Outcomes of the clauses that a reader finds opened."""
_MOST_RANKS = 64
_GIB = 1 << 30
_CODE = re.compile("`([^`]+)`")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "bytes": _bytes,
        "duration": _duration,
        "first_line": lambda text: text.partition("\n")[0],
        "has_more": lambda text: "\n" in text,
        "layout_svg": _layout_svg,
        "one_line": _one_line,
        "prose": _prose,
        "timeline_svg": lambda timeline: Markup(timeline_picture.render_svg(timeline)),
        "trace": _trace,
        "trace_link": lambda timeline: f"data:application/json;base64,{base64.b64encode(_trace(timeline).encode()).decode()}",
    }
    return environment.get_template("report.html.j2")


def render(report: Report) -> bytes:
    """The page in UTF-8."""
    checks = checks_by_name(report)
    rows = [
        (area, [(clause, found, what_was_said(clause, found)) for clause in area.clauses for found in [checks_of(clause, checks)]])
        for area in rows_by_area(report)
    ]
    return _template().render(report=report, areas=rows, opened=_OPENED).lstrip("\n").encode()


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _prose(text: str) -> Markup:
    """Text in which words between backquotes are code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def _trace(timeline: Timeline) -> str:
    return _one_line(timeline_picture.chrome_trace(timeline))


def _layout_svg(layout: LayoutPicture) -> Markup:
    """The picture of a layout, or a sentence where it is too large to draw or is no layout."""
    from harness.errors import HarnessError

    try:
        from harness.routed_experts import ParallelLayout  # brings PyTorch with it
        from reports import layout_picture
    except Exception as error:
        # This host's fault, whatever PyTorch raises, and not the report's.
        raise ImportError(f"PyTorch, which drawing a layout takes, cannot be imported: {type(error).__name__}: {error}") from error

    sizes = layout.model_dump(exclude={"sequences"})
    if layout.tensor_parallel_size * layout.context_parallel_size > _MOST_RANKS:
        return escape(f"{layout.tensor_parallel_size} × {layout.context_parallel_size} ranks are too many to draw.")
    try:
        drawn = ParallelLayout(**sizes, tensor_parallel_rank=0, context_parallel_rank=0)
        return Markup(layout_picture.render_svg(drawn, list(layout.sequences)))
    except HarnessError as error:
        return escape(f"This layout cannot be drawn: {error}")


def _bytes(count: int | None) -> str:
    return "not told" if count is None else f"{count / _GIB:.1f} GiB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
