"""Everything that a package holds beside `report.json`, made from its bytes alone.

For: the writer of a package, and `verify`, which makes the files again and compares them. The same bytes give the same files on any day, in
any time zone and locale. Not for: writing files (`reports.package`) or signing (`reports.signing`).
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from reports.model import Report
from reports.rendering import badge, ctrf, html, junit, statement

REPORT, STATEMENT, SIGNATURE = "report.json", "statement.json", "statement.dsse.json"
FILES = (REPORT, "report.html", "junit.xml", "ctrf.json", "badge.svg", STATEMENT)
"""The names of a package's files, in order; a signed one has `SIGNATURE` too. Nothing else is in a package."""

_SOURCES = (".py", ".j2", ".css", ".js")


@cache
def renderer_version() -> str:
    """Names this renderer: a number, and a digest of its sources, so that two that could differ never have one name."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    pictures = [folder.parent / "layout_picture.py", folder.parent / "model.py"]
    for path in [*sorted(path for path in folder.rglob("*") if path.suffix in _SOURCES), *pictures]:
        digest.update(f"{path.name}\0".encode() + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return f"1+{digest.hexdigest()[:12]}"


def render_all(data: bytes) -> dict[str, bytes]:
    """Every file of the package by name, `report.json` itself included, from the bytes of `report.json`.

    Raises:
        pydantic.ValidationError: they hold no report of this format.
    """
    report = Report.from_bytes(data)
    files = {
        REPORT: data,
        "report.html": html.render(report),
        "junit.xml": junit.render(report),
        "ctrf.json": ctrf.render(report),
        "badge.svg": badge.render(report),
    }
    files[STATEMENT] = statement.render(report, files)
    return files
