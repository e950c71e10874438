"""Steps about clauses and checks: the contract's, whole and once, with the outcomes that their checks give.

For: `examining.py`. Not for: what follows from the outcomes (`worth_steps.py`), or
what the suite has (`suite_steps.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from conformance.clauses import Clause
from reports.levels import clause_outcomes
from reports.model import CheckResult, ClauseResult
from reports.rendering import REPORT
from reports.verification.findings import Examined, Finding, Note, Said, Step

_NEEDS_FAILURE = frozenset({"fail", "flaky"})
_NEEDS_REASON = frozenset({"unsupported", "not-run", "not-checkable", "fail", "flaky", "harness-error"})


def find_clauses(examined: Examined) -> Iterator[Said]:
    """Every clause of the contract's revision stands in the report once, as the contract has it."""
    report, contract = examined.report, examined.contract
    revision = report.suite.contract_revision
    if revision != contract.revision:
        yield Finding.about(
            "contract-revision",
            f"{REPORT}/suite/contract_revision",
            f"the contract is {revision}, and this version knows {contract.revision}: take version {report.suite.version} of this tool",
        )
        return
    times = Counter(clause.id for clause in report.clauses)
    for clause_id in contract.clauses:
        if not times[clause_id]:
            yield Finding("clause-missing", f"{REPORT}/clauses", f"{clause_id}, which contract {revision} requires, is not there")
    for clause_id, count in times.items():
        if clause_id not in contract.clauses:
            yield Finding.about("clause-unknown", _at(clause_id), f"contract {revision} has no such clause")
        elif count > 1:
            yield Finding("clause-twice", _at(clause_id), f"stands there {count} times")
    for clause in report.clauses:
        if clause.id in contract.clauses:
            yield from _altered(clause, contract.clauses[clause.id])
    ids = [clause.id for clause in report.clauses]
    if sorted(ids) == sorted(contract.clauses) and ids != list(contract.clauses):
        yield Finding("clause-order", f"{REPORT}/clauses", "the clauses are not in the contract's order")
    if report.suite.contract_digest != contract.digest:
        yield Finding("contract-digest", f"{REPORT}/suite/contract_digest", f"not the digest of contract {revision}")
    if [(area.name, area.title) for area in report.areas] != list(contract.areas.items()):
        yield Finding("areas", f"{REPORT}/areas", f"not the areas of contract {revision}")


def _altered(found: ClauseResult, due: Clause) -> Iterator[Said]:
    differences = (
        ("level", found.level, due.level.value),
        ("subject", found.subject, due.subject.value),
        ("tiers", list(found.tiers), [tier.value for tier in due.tiers]),
        ("capability", found.capability, due.capability),
        ("text", found.text, due.text),
    )
    for name, has, must in differences:
        if has != must:
            yield Finding.about("clause-altered", f"{_at(found.id)}/{name}", f"is {has!r}, and in the contract {must!r}")


def find_checks(examined: Examined) -> Iterator[Said]:
    """Every check stands there once, belongs to a clause, and says what its outcome needs."""
    report = examined.report
    named = Counter(name for clause in report.clauses for name in set(clause.checks))
    times = Counter(check.name for check in report.checks)
    for clause in report.clauses:
        for name, count in Counter(clause.checks).items():
            if name not in times:
                yield Finding.about("check-missing", _at(clause.id), f"the check {name} has no result")
            if count > 1:
                yield Finding.about("check-twice", _at(clause.id), f"names the check {name} {count} times")
    for name, count in times.items():
        if count > 1:
            yield Finding.about("check-twice", f"{REPORT}/checks", f"{name} stands there {count} times")
        if name not in named:
            yield Finding.about("check-unused", f"{REPORT}/checks", f"{name} belongs to no clause")
    names = [check.name for check in report.checks]
    if names != sorted(names):
        yield Finding("check-order", f"{REPORT}/checks", "the checks are not in the order of their names")
    for check in report.checks:
        yield from _inconsistent(check)


def _inconsistent(check: CheckResult) -> Iterator[Said]:
    where = f"{REPORT}/checks/{check.name}"
    if check.outcome in ("waived", "known-failure", "not-yet-checked"):
        yield Finding.about("check-outcome", where, f"{check.outcome} is an outcome of clauses, not of checks")
    if check.outcome in _NEEDS_REASON and not (check.said or "").strip():
        yield Finding.about("reason-missing", where, f"{check.outcome}, and nothing says why")
    if check.failure is not None and check.outcome not in _NEEDS_FAILURE:
        yield Finding.about("failure-kept", where, f"{check.outcome}, and there is a failing program")
    if check.examples_discarded > check.examples_run:
        yield Finding.about("examples", where, f"{check.examples_discarded} examples discarded of {check.examples_run}")
    elif check.outcome == "pass" and check.examples_run and check.examples_discarded == check.examples_run:
        yield Finding.about("vacuous", where, f"a pass of which all {check.examples_run} examples were discarded")
    elif check.outcome == "not-run" and check.examples_run:
        yield Finding.about("examples", where, f"not run, with {check.examples_run} examples")


def find_outcomes(examined: Examined) -> Iterator[Said]:
    """Every clause has the outcome that its checks and the exceptions give."""
    due = clause_outcomes(examined.report)
    for clause in examined.report.clauses:
        if clause.outcome != due[clause.id]:
            message = f"is {clause.outcome}, and its checks and exceptions give {due[clause.id]}"
            yield Finding("outcome", f"{_at(clause.id)}/outcome", message)
    yield Note(f"{len(examined.report.clauses)} clauses, {len(examined.report.checks)} checks.")


def _at(clause_id: str) -> str:
    return f"{REPORT}/clauses/{clause_id}"


CONTRACT_STEPS = (
    Step("clauses", "Every clause of the contract is there once, as the contract has it", find_clauses),
    Step("checks", "Every check is there once, with what its outcome needs", find_checks),
    Step("outcomes", "Every clause has the outcome that its checks give", find_outcomes),
)
