"""The step that compares a report's checks with those of the suite, where the suite here is the one that made the report.

For: `examining.py`. Not for: clauses and their outcomes (`contract_steps.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from reports.derived_facts import SUITE, SuiteCheck, checks_of_suite
from reports.facts import folder_digest
from reports.model import CheckResult, Report
from reports.rendering import REPORT
from reports.verification.findings import Examined, Finding, NotChecked, Said, Step

_ENOUGH_PROPERTIES = 20


def find_suite(examined: Examined) -> Iterator[Said]:
    """The checks are those that the suite has, of its tiers, and run as it runs them."""
    report = examined.report
    if report.suite.digests.get("conformance") != _digest_of_suite():
        yield NotChecked(
            "Made with another version of the suite: whether the report has all of its checks, and whether they ran as they do, is not"
            " known here."
        )
        return
    found: dict[str, set[str]] = {}
    for clause in report.clauses:
        for name in clause.checks:
            found.setdefault(name.partition("[")[0], set()).add(clause.id)
    due = checks_of_suite()
    for name in sorted(found.keys() | due.keys()):
        clauses = set(due[name].clauses) if name in due else set()
        if found.get(name, set()) != clauses:
            message = f"stands under {_listed(found.get(name, ()))}; in the suite under {_listed(clauses)}"
            yield Finding.about("check-list", _at(name), message)
    for check in report.checks:
        declared = due.get(check.name.partition("[")[0])
        if declared is not None:
            yield from _otherwise(check, declared)
    yield from _effort(report)


def _otherwise(check: CheckResult, declared: SuiteCheck) -> Iterator[Said]:
    """A check that is not as its source says."""
    if check.tier != declared.tier:
        yield Finding("check-tier", _at(check.name), f"of the tier {check.tier}; in the suite of the tier {declared.tier}")
    if check.examples_run and not declared.is_property:
        yield Finding(
            "check-examples", _at(check.name), f"{check.examples_run} examples of a check that is no property and has none"
        )
    if check.outcome == "pass" and declared.is_property and not check.examples_run:
        yield Finding("check-examples", _at(check.name), "a property that passed without an example")


def _effort(report: Report) -> Iterator[Said]:
    """Whether properties ran as many examples as the report says: one whose inputs are few ends earlier, but not every one does."""
    if not report.run.complete or report.run.deselected:
        return
    due = checks_of_suite()
    kept = [
        (check.examples_run - check.examples_discarded, max(1, round(report.run.examples * declared.share)))
        for check in report.checks
        for declared in [due.get(check.name.partition("[")[0])]
        if declared is not None and declared.is_property and check.outcome == "pass"
    ]
    if len(kept) >= _ENOUGH_PROPERTIES and not any(ran >= asked for ran, asked in kept):
        most = max(ran for ran, _ in kept)
        message = (
            f"{report.run.examples} examples a property, and no property ran its share of them; the most that one ran is {most}"
        )
        yield Finding("run-examples", f"{REPORT}/run/examples", message)


@cache
def _digest_of_suite() -> str:
    return folder_digest(SUITE)


def _at(name: str) -> str:
    return f"{REPORT}/checks/{name}"


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(sorted(ids)) or "no clause"


SUITE_STEPS = (Step("suite", "The checks are those of the suite, and ran as they do", find_suite),)
