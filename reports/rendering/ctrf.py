"""`ctrf.json`: the run in the Common Test Report Format, one test a clause. Not for: what has no place in that form."""

from __future__ import annotations

import json
from typing import Any

from reports.model import CheckResult, ClauseResult, Report
from reports.rendering.lookup import checks_by_name, checks_of, milliseconds, rows_by_area, what_was_said

_STATUS = {
    "pass": "passed",
    "fail": "failed",
    "flaky": "failed",
    "harness-error": "failed",
    "unsupported": "skipped",
    "not-run": "skipped",
    "not-checkable": "skipped",
    "not-yet-checked": "pending",
    "waived": "other",
    "known-failure": "other",
}
_STATUSES = ("passed", "failed", "skipped", "pending", "other")


def render(report: Report) -> bytes:
    """The document, one line an indent, ending in a newline."""
    checks = checks_by_name(report)
    areas = rows_by_area(report)
    tests = [_test(f"{area.name}: {area.title}", clause, checks_of(clause, checks)) for area in areas for clause in area.clauses]
    start, stop = milliseconds(report)
    found = [test["status"] for test in tests]
    summary = {
        "tests": len(tests),
        **{status: found.count(status) for status in _STATUSES},
        "suites": len(areas),
        "start": start,
        "stop": stop,
        "extra": {"headline": report.verdict.headline},
    }
    document = {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {
            "tool": {"name": "accelerator-conformance", "version": report.suite.version},
            "summary": summary,
            "tests": tests,
            "environment": _environment(report),
        },
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _test(suite: str, clause: ClauseResult, checks: list[CheckResult]) -> dict[str, Any]:
    test: dict[str, Any] = {
        "name": clause.id,
        "status": _STATUS[clause.outcome],
        "duration": round(1000 * sum(check.seconds for check in checks)),
        "suite": [suite],
        "rawStatus": clause.outcome,
        "tags": [clause.level, clause.subject, *clause.tiers],
    }
    said = what_was_said(clause, checks)
    if said and clause.outcome != "pass":
        test["message"] = said
    programs = [check.failure.program for check in checks if check.failure is not None]
    if programs:
        test["snippet"] = "\n".join(programs)
    return test


def _environment(report: Report) -> dict[str, Any]:
    return {
        "appName": report.backend.name,
        "appVersion": report.backend.distribution,
        "osPlatform": report.host.os,
        "osRelease": report.host.kernel,
        "testEnvironment": report.verdict.status,
        "extra": {"contract": report.suite.contract_revision, "torch": report.host.torch, "python": report.host.python},
    }
