"""What a run is worth: outcomes of clauses, counts, levels and status, each a pure function of the report document.

For: the writer of a report, which puts the answers in, and `verify`, which computes them again and compares. The rules are in
`docs/levels.md`. Not for: whether the document is genuine (`verify`), or which checks ran and why (`building.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import get_args

from conformance.outcomes import Outcome, combine
from reports.model import (
    Cap,
    CheckResult,
    ClauseResult,
    LevelName,
    LevelResult,
    LevelState,
    OutcomeName,
    Report,
    StatusName,
    TierName,
    Verdict,
)
from reports.suite_options import doubtful, shown

EXAMPLES_TO_CERTIFY = 1000
"""Examples a property that hardware is certified with: those of the effort `certify`."""

AREAS_OF_LEVEL: Mapping[LevelName, tuple[str, ...]] = MappingProxyType(
    {
        "core": ("REG", "SEL", "DEV", "VIS", "OPS", "SER", "RNG", "AMP", "CAP", "FRK", "ERR"),
        "streams": ("STR", "THR", "PRF", "GRF"),
        "memory": ("MEM", "IPC"),
        "distributed": ("PGN", "PGL", "COL"),
        "routed-experts": ("RXA", "RXR"),
    }
)
"""Every level but `full`, which covers all areas of the document."""

_TIERS: tuple[TierName, ...] = get_args(TierName)
_FAILING = (Outcome.FAIL, Outcome.FLAKY)
_SHOWN_NAMES = 3  # of changed files, and of options


def clause_outcomes(report: Report) -> dict[str, OutcomeName]:
    """The outcome of every clause, from its checks and the exceptions alone."""
    checks = {check.name: check for check in report.checks}
    excepted = {entry.clause: entry for entry in report.exceptions.entries} if report.exceptions else {}
    outcomes: dict[str, OutcomeName] = {}
    for clause in report.clauses:
        outcome = _from_checks(clause, [checks[name] for name in clause.checks if name in checks])
        entry = excepted.get(clause.id)
        if entry is not None and outcome in _FAILING:
            outcome = Outcome.KNOWN_FAILURE if entry.kind == "known-failure" else Outcome.WAIVED
        outcomes[clause.id] = outcome.value
    return outcomes


def _from_checks(clause: ClauseResult, checks: list[CheckResult]) -> Outcome:
    """A check that needs more than its clause does, and could not run, does not count, unless the clause has no other."""
    own = max(map(_TIERS.index, clause.tiers), default=0)
    counted = [check for check in checks if check.outcome != Outcome.NOT_RUN.value or _TIERS.index(check.tier) <= own]
    return combine(Outcome(check.outcome) for check in counted or checks)


def count_outcomes(clauses: Iterable[ClauseResult]) -> dict[OutcomeName, int]:
    """Clauses by outcome, in the order of the enumeration, without those that do not occur."""
    found = Counter(clause.outcome for clause in clauses)
    return {outcome: found[outcome] for outcome in get_args(OutcomeName) if found[outcome]}


def judge(report: Report) -> Verdict:
    """The verdict on a report; what its `verdict` says is not looked at."""
    caps = tuple(_caps(report))
    levels = _levels(report)
    kinds = {cap.id for cap in caps}
    status: StatusName = "simulated" if kinds & {"simulated", "fault"} else "preview" if kinds else "hardware"
    attained = tuple(level.name for level in levels if level.state == "attained")
    supplied = [clause for clause in report.clauses if clause.subject in report.backend.supplied]
    return Verdict(
        headline=_headline(report, status, attained, caps),
        status=status,
        certified=attained if status == "hardware" else (),
        caps=caps,
        levels=levels,
        should_not_met=tuple(
            clause.id for clause in supplied if clause.level == "SHOULD" and clause.outcome not in ("pass", "unsupported")
        ),
    )


def _headline(report: Report, status: StatusName, attained: tuple[LevelName, ...], caps: tuple[Cap, ...]) -> str:
    about = f"{report.backend.name}, contract {report.suite.contract_revision}"
    levels = ", ".join(attained) or "no level"
    if status == "hardware":
        return f"HARDWARE: {about}: certifies {levels}."
    return f"{status.upper()}: {about}: certifies nothing. Levels attained: {levels}. Held back by: {'; '.join(cap.text for cap in caps)}."


def _caps(report: Report) -> Iterable[Cap]:
    run, backend, suite = report.run, report.backend, report.suite
    if backend.simulated:
        yield Cap(id="simulated", text="the devices were simulated")
    if run.fault:
        yield Cap(id="fault", text=f"the fault {run.fault} was in force")
    if not run.complete:
        yield Cap(id="interrupted", text=f"the run did not end: {run.reported} of {run.checks} checks were reported")
    if backend.no_device_reason is not None:
        yield Cap(id="no-device", text=f"no device was used ({backend.no_device_reason})")
    elif not backend.simulated and not report.host.devices:
        yield Cap(id="no-device", text="no device could be named")
    if suite.tree == "dirty":
        yield Cap(id="dirty-tree", text=f"the suite was changed ({', '.join(suite.changed[:_SHOWN_NAMES])})")
    if suite.tree == "unknown":
        yield Cap(id="unknown-tree", text="nothing shows that the suite is unchanged")
    if run.examples < EXAMPLES_TO_CERTIFY:
        yield Cap(id="effort", text=f"{run.examples} examples a property, where certifying takes {EXAMPLES_TO_CERTIFY}")
    if run.deselected:
        yield Cap(id="deselected", text=f"the command line left out {len(run.deselected)} of {run.checks} checks")
    options = [shown(option) for option in doubtful(run.argv, left_out=bool(run.deselected))]
    if options:
        more = ", …" if len(options) > _SHOWN_NAMES else ""
        yield Cap(id="options", text=f"options could have changed what ran ({', '.join(options[:_SHOWN_NAMES])}{more})")
    for tier in _missing_tiers(report):
        yield Cap(id="missing-tier", text=f"the {tier} tier did not run")


def _missing_tiers(report: Report) -> list[TierName]:
    """Tiers that a MUST of the supplied subjects needs at least, and of which no check ran."""
    needed = {
        min(clause.tiers, key=_TIERS.index)
        for clause in report.clauses
        if clause.level == "MUST" and clause.subject in report.backend.supplied and clause.tiers
    }
    ran = {check.tier for check in report.checks if check.outcome != "not-run"}
    return [tier for tier in _TIERS if tier in needed - ran]


def _levels(report: Report) -> tuple[LevelResult, ...]:
    all_areas = tuple(dict.fromkeys(clause.id.partition("-")[0] for clause in report.clauses))
    of_level: dict[LevelName, tuple[str, ...]] = {**AREAS_OF_LEVEL, "full": all_areas}
    denied = {fact.name for fact in report.capabilities if not fact.supported and fact.evidence.strip()}
    supplied = [clause for clause in report.clauses if clause.level == "MUST" and clause.subject in report.backend.supplied]
    return tuple(_level(name, areas, supplied, denied) for name, areas in of_level.items())


def _level(name: LevelName, areas: tuple[str, ...], supplied: list[ClauseResult], denied: set[str]) -> LevelResult:
    wanted = set(areas)
    clauses = [clause for clause in supplied if clause.id.partition("-")[0] in wanted]
    passed = sum(clause.outcome == "pass" for clause in clauses)
    unsupported = tuple(clause.id for clause in clauses if clause.outcome == "unsupported" and clause.capability in denied)
    missing = tuple(
        clause.id
        for clause in clauses
        if clause.outcome != "pass" and not (clause.outcome == "unsupported" and clause.capability in denied)
    )
    state: LevelState = "not-supplied" if not clauses else "not-attained" if missing else "attained" if passed else "unsupported"
    return LevelResult(name=name, state=state, areas=areas, passed=passed, unsupported=unsupported, missing=missing)


def finished(report: Report) -> Report:
    """The report with everything that is computed filled in: outcomes of clauses, counts, verdict."""
    outcomes = clause_outcomes(report)
    clauses = tuple(clause.model_copy(update={"outcome": outcomes[clause.id]}) for clause in report.clauses)
    counted = report.model_copy(update={"clauses": clauses, "counts": count_outcomes(clauses)})
    return counted.model_copy(update={"verdict": judge(counted)})


def nothing_judged() -> Verdict:
    """Stands in a report until it is finished."""
    return Verdict(headline="", status="preview", certified=(), caps=(), levels=(), should_not_met=())
