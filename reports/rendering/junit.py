"""`junit.xml`: one suite an area, one case a clause, for continuous-integration servers. Not for: what has no place in that form."""

from __future__ import annotations

from xml.etree import ElementTree

from reports.model import CheckResult, ClauseResult, Report
from reports.rendering.lookup import checks_by_name, checks_of, rows_by_area, what_was_said, xml_text

_FAILURES, _ERRORS = ("fail", "flaky"), ("harness-error",)


def render(report: Report) -> bytes:
    """The document in UTF-8."""
    checks = checks_by_name(report)
    root = ElementTree.Element("testsuites", name=xml_text(report.verdict.headline), time=f"{report.run.seconds:.3f}")
    _count(root, report.clauses)
    for area in rows_by_area(report):
        suite = ElementTree.SubElement(root, "testsuite", name=xml_text(f"{area.name}: {area.title}"))
        suite.set("timestamp", report.run.started.removesuffix("Z"))
        suite.set("hostname", "")
        _count(suite, area.clauses)
        seconds = 0.0
        for clause in area.clauses:
            found = checks_of(clause, checks)
            seconds += sum(check.seconds for check in found)
            _case(suite, area.name, clause, found)
        suite.set("time", f"{seconds:.3f}")
    ElementTree.indent(root, " ")
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _count(element: ElementTree.Element, clauses: tuple[ClauseResult, ...]) -> None:
    outcomes = [clause.outcome for clause in clauses]
    failures = sum(outcome in _FAILURES for outcome in outcomes)
    errors = sum(outcome in _ERRORS for outcome in outcomes)
    element.set("tests", str(len(outcomes)))
    element.set("failures", str(failures))
    element.set("errors", str(errors))
    element.set("skipped", str(len(outcomes) - failures - errors - outcomes.count("pass")))


def _case(suite: ElementTree.Element, area: str, clause: ClauseResult, checks: list[CheckResult]) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=area, name=clause.id)
    case.set("time", f"{sum(check.seconds for check in checks):.3f}")
    if clause.outcome == "pass":
        return
    said = what_was_said(clause, checks)
    tag = "failure" if clause.outcome in _FAILURES else "error" if clause.outcome in _ERRORS else "skipped"
    message = f"{clause.outcome}: {said.partition(chr(10))[0]}" if said else clause.outcome
    ending = ElementTree.SubElement(case, tag, message=xml_text(message))
    if tag != "skipped":
        ending.set("type", clause.outcome)
        ending.text = xml_text(_details(said, checks))


def _details(said: str, checks: list[CheckResult]) -> str:
    shown = [check.failure for check in checks if check.failure is not None]
    return "\n".join([said, *(f"\n{failure.program}\nagain: {failure.replay}" for failure in shown)])
