"""`report.html`: the report for people, in one file that fetches nothing.

For: any browser, from a phone to paper, without a server. Everything that the report says is escaped. Not for: the pictures
(`timeline_picture.py`, `reports.layout_picture`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

from reports.model import Report
from reports.rendering.lookup import checks_by_name, checks_of, rows_by_area, what_was_said


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
    return environment.get_template("report.html.j2")


def render(report: Report) -> bytes:
    """The page in UTF-8."""
    checks = checks_by_name(report)
    rows = [
        (area, [(clause, found, what_was_said(clause, found)) for clause in area.clauses for found in [checks_of(clause, checks)]])
        for area in rows_by_area(report)
    ]
    return _template().render(report=report, areas=rows).encode()
