"""From a run of the suite to its report.

For: putting results, facts and exceptions into one document. Not for: judging it (`levels.py`) or gathering the facts (`facts.py`,
`backend_facts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.clauses import AREAS, CLAUSES, Clause
from conformance.outcomes import Outcome
from conformance.recording import CheckRecord, RunResults
from reports.derived_facts import SuiteCheck, checks_of_suite, configuration_digest, supplied_subjects
from reports.known_failures import problems
from reports.levels import finished, nothing_judged
from reports.model import (
    FORMAT,
    Area,
    BackendFacts,
    CapabilityFact,
    CheckResult,
    ClauseResult,
    Declared,
    DeviceFacts,
    Exceptions,
    Failure,
    HostFacts,
    Report,
    Run,
    SuiteFacts,
    TierName,
)
from reports.rendering import renderer_version
from reports.timeline_data import layout_from, program_text, timeline_from

_LEFT_OUT = "left out by the command line"
_NOT_REACHED = "the run ended before it, or left it out"


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run before its first check. `backend` is what `backend_facts.gather` answered."""

    started: str
    argv: tuple[str, ...]
    declared: Declared
    suite: SuiteFacts
    host: HostFacts
    backend: Mapping[str, Any]
    exceptions: Exceptions | None


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, or how far it has come: seconds since its start, whether it is complete, in words, and names of checks reported."""

    seconds: float
    complete: bool
    ending: str
    reported: frozenset[str]


def build_report(results: RunResults, facts: RunFacts, end: RunEnd) -> Report:
    """The finished report of what the suite gathered."""
    records = {record.check: record for result in results.clauses.values() for record in result.checks}
    seen = {name.partition("[")[0] for name in records}
    absent = {name: check for name, check in checks_of_suite().items() if name not in seen}  # pytest was given some files only
    clauses = tuple(_clause(CLAUSES[result.id], result.checks, absent) for result in results.clauses.values())
    checks = [*map(_check, records.values()), *(_absent_check(name, check.tier, end.complete) for name, check in absent.items())]
    told = _clean(facts.backend)
    left_out = sorted([*absent, *(name for name in records if name not in end.reported)]) if end.complete else []
    report = Report(
        format=FORMAT,
        renderer=renderer_version(),
        verdict=nothing_judged(),
        declared=facts.declared,
        run=_run(results, facts, end, len(checks), left_out),
        backend=_backend(results, facts),
        suite=facts.suite,
        host=facts.host.model_copy(
            update={
                "devices": tuple(DeviceFacts(**device) for device in told["devices"]),
                "driver": told["driver"],
                "runtime": told["runtime"],
            }
        ),
        capabilities=tuple(CapabilityFact(**fact) for fact in told["capabilities"]),
        exceptions=facts.exceptions,
        counts={},
        areas=tuple(Area(name=area.name, title=area.title) for area in AREAS.values()),
        clauses=clauses,
        checks=tuple(sorted(checks, key=lambda check: check.name)),
        extra={},
    )
    report = finished(report)
    if report.exceptions is None:
        return report
    return report.model_copy(update={"exceptions": report.exceptions.model_copy(update={"problems": problems(report)})})


def _run(results: RunResults, facts: RunFacts, end: RunEnd, checks: int, left_out: list[str]) -> Run:
    given = _clean(results.facts)
    return Run(
        started=facts.started,
        seconds=round(end.seconds, 3),
        complete=end.complete,
        ending=end.ending,
        argv=tuple(map(_utf8, facts.argv)),
        effort=given["effort"],
        examples=given["examples"],
        seed=given["seed"],
        tier=given["tier"],
        fault=given["fault"],
        checks=checks,
        reported=len(end.reported),
        deselected=tuple(left_out),
    )


def _backend(results: RunResults, facts: RunFacts) -> BackendFacts:
    given, told = _clean(results.facts), _clean(facts.backend)
    configuration = told["configuration"]
    return BackendFacts(
        name=given["backend"],
        simulated=given["simulated"],
        supplied=supplied_subjects(given["normalizer"], given["aligner"]),
        accelerator=given["accelerator"],
        normalizer=given["normalizer"],
        aligner=given["aligner"],
        adapter=told["adapter"],
        module_digest=told["module_digest"],
        distribution=told["distribution"],
        device_type=told["device_type"],
        no_device_reason=given["no_device_reason"],
        configuration=configuration,
        configuration_digest=configuration_digest(configuration),
    )


def _clause(clause: Clause, records: list[CheckRecord], absent: Mapping[str, SuiteCheck]) -> ClauseResult:
    names = [record.check for record in records] + [name for name, check in absent.items() if clause.id in check.clauses]
    return ClauseResult(
        id=clause.id,
        level=clause.level.value,
        subject=clause.subject.value,
        tiers=tuple(tier.value for tier in clause.tiers),
        capability=clause.capability,
        outcome=Outcome.NOT_YET_CHECKED.value,
        checks=tuple(sorted(names)),
        text=clause.text,
    )


def _check(record: CheckRecord) -> CheckResult:
    tier: Any = record.tier  # the model checks these two
    outcome: Any = record.outcome
    return CheckResult(
        name=_utf8(record.check),
        tier=tier,
        outcome=outcome,
        seconds=round(record.seconds, 3),
        examples_run=record.examples_run,
        examples_discarded=record.examples_discarded,
        said=_utf8(record.text) or None,
        failure=_failure(record) if outcome in (Outcome.FAIL, Outcome.FLAKY) else None,
    )


def _failure(record: CheckRecord) -> Failure:
    shown = _clean(record.shown)
    return Failure(
        program=program_text(shown.get("program")) or _utf8(record.example) or f"{record.check.rpartition('::')[2]}(backend)",
        document=shown.get("program"),
        replay=_utf8(record.replay),
        timeline=timeline_from(shown["timeline"]) if "timeline" in shown else None,
        layout=layout_from(shown["layout"]) if "layout" in shown else None,
    )


def _absent_check(name: str, tier: TierName, complete: bool) -> CheckResult:
    reason = _LEFT_OUT if complete else _NOT_REACHED
    return CheckResult(name=name, tier=tier, outcome="not-run", seconds=0.0, examples_run=0, examples_discarded=0, said=reason)


def _clean(value: Any) -> Any:
    """JSON data without what UTF-8 cannot hold."""
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, dict):
        return {_utf8(str(key)): _clean(inner) for key, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
