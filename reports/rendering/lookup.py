"""What several rendered forms ask of a report.

For: clauses by area, the checks behind a clause, and text fit for XML. Not for: any one form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from reports.model import CheckResult, ClauseResult, Report

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class AreaRows:
    """One area's clauses in the report's order."""

    name: str
    title: str
    clauses: tuple[ClauseResult, ...]


def rows_by_area(report: Report) -> list[AreaRows]:
    """The report's areas that have a clause; clauses of an area that the report does not title come under their letters."""
    found: dict[str, list[ClauseResult]] = {area.name: [] for area in report.areas}
    for clause in report.clauses:
        found.setdefault(clause.id.partition("-")[0], []).append(clause)
    titles = {area.name: area.title for area in report.areas}
    return [AreaRows(name, titles.get(name, name), tuple(clauses)) for name, clauses in found.items() if clauses]


def checks_by_name(report: Report) -> dict[str, CheckResult]:
    """Every check by its name."""
    return {check.name: check for check in report.checks}


def checks_of(clause: ClauseResult, checks: Mapping[str, CheckResult]) -> list[CheckResult]:
    """The checks that cover a clause."""
    return [checks[name] for name in clause.checks if name in checks]


def what_was_said(clause: ClauseResult, checks: list[CheckResult]) -> str:
    """The distinct texts of the checks that decided the clause's outcome, or of all where an exception or no check did."""
    deciding = [check for check in checks if check.outcome == clause.outcome] or checks
    return "\n".join(dict.fromkeys(check.said for check in deciding if check.said))


def xml_text(text: str) -> str:
    """The text without the characters that XML 1.0 cannot hold; each is shown as its code."""
    return _NOT_XML.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def milliseconds(report: Report) -> tuple[int, int]:
    """Start and end of the run since 1970."""
    started = datetime.strptime(report.run.started, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    start = int(started.timestamp() * 1000)
    return start, start + round(report.run.seconds * 1000)
