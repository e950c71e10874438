"""What a run prints: a header that names it, and a summary by area.

For: people at a terminal. Not for: machines (`reports`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from conformance import CONTRACT_REVISION
from conformance.clauses import AREAS
from conformance.outcomes import FAILING, Outcome
from conformance.recording import CheckRecord, RunResults
from conformance.shortening import beginning

if TYPE_CHECKING:
    import pytest

    from conformance.session import SuiteSession

_COLUMNS = {  # shown always; the rest only where a run has one
    Outcome.PASS: "passed",
    Outcome.FAIL: "failed",
    Outcome.UNSUPPORTED: "unsupported",
    Outcome.NOT_RUN: "not run",
    Outcome.NOT_YET_CHECKED: "not yet checked",
}
_RARE_COLUMNS = {
    Outcome.NOT_CHECKABLE: "not checkable",
    Outcome.FLAKY: "flaky",
    Outcome.HARNESS_ERROR: "harness error",
    Outcome.KNOWN_FAILURE: "known failure",
    Outcome.WAIVED: "waived",
}
_TITLE_WIDTH = 40
_EXAMPLE_LIMIT = 500
_NOT_COLLECTED = "none of its checks was collected"


def header(session: SuiteSession) -> list[str]:
    """Lines for pytest's header: backend, contract, effort and seed."""
    options = session.options
    if session.collect_only:
        return [f"conformance: contract {CONTRACT_REVISION}"]
    backend = session.backend
    kind = "simulated" if backend.is_fake else "real"
    devices = backend.no_device_reason or f"{backend.device_count} {kind} device(s)"
    fault = f", fault {options.choice.fault}" if options.choice.fault else ""
    return [
        f"conformance: backend {backend.name} ({devices}), contract {CONTRACT_REVISION}{fault}",
        f"conformance: effort {options.effort} ({options.examples} examples a property), --hypothesis-seed={options.seed}",
    ]


def write(reporter: pytest.TerminalReporter, session: SuiteSession) -> None:
    """Print the table by area, what failed or could not be checked and why, and what the run is worth."""
    results = session.results
    if results is None:
        return
    reporter.section(f"conformance of {session.backend.name}", sep="=", bold=True)
    for line in table(results):
        reporter.write_line(line)
    _write_reasons(reporter, results)
    for line in worth(results):
        reporter.write_line(line, bold=True)


def table(results: RunResults) -> list[str]:
    """Clauses by area and outcome, with totals."""
    counts = {name: Counter(results.clauses[clause.id].outcome for clause in area.clauses) for name, area in AREAS.items()}
    total: Counter[Outcome] = sum(counts.values(), Counter())
    columns = {**_COLUMNS, **{outcome: title for outcome, title in _RARE_COLUMNS.items() if total[outcome]}}

    def row(name: str, title: str, cells: list[str]) -> str:
        return f"{name:<6}{title:<{_TITLE_WIDTH}}" + "".join(
            f"{cell:>{len(head) + 2}}" for cell, head in zip(cells, columns.values(), strict=True)
        )

    lines = [row("area", "clauses", list(columns.values()))]
    lines += [row(name, AREAS[name].title, [str(count[outcome] or "-") for outcome in columns]) for name, count in counts.items()]
    lines.append(row("", f"total of {total.total()} clauses", [str(total[outcome]) for outcome in columns]))
    return lines


def _write_reasons(reporter: pytest.TerminalReporter, results: RunResults) -> None:
    """One line for each distinct reason, with the clauses that it holds for."""
    failing = tuple(FAILING)
    for outcomes, heading in (
        (failing, "failed"),
        ((Outcome.UNSUPPORTED,), "unsupported, with the evidence"),
        ((Outcome.NOT_CHECKABLE,), "not checkable"),
        ((Outcome.NOT_RUN,), "not run"),
    ):
        reasons: dict[str, list[str]] = {}
        replays: dict[str, str] = {}
        for clause_id, result in results.clauses.items():
            if result.outcome in outcomes:
                if outcomes == (Outcome.NOT_RUN,) and not result.checks:
                    reasons.setdefault(_NOT_COLLECTED, []).append(clause_id)
                for check in result.checks:
                    if Outcome(check.outcome) in outcomes:
                        reason = _reason(check)
                        reasons.setdefault(reason, []).append(clause_id)
                        replays[reason] = check.replay
        if reasons:
            reporter.write_line(f"{heading}:")
        for reason, clause_ids in reasons.items():
            reporter.write_line(f"  {_ranges(clause_ids)}: {reason}")
            if replays.get(reason):
                reporter.write_line(f"    again: {replays[reason]}")


def _ranges(clause_ids: list[str]) -> str:
    """Clause ids in the contract's order, with runs of three or more numbers of an area as `DEV-1 to 4`."""
    runs: list[list[int]] = []
    areas: list[str] = []
    for clause_id in dict.fromkeys(clause_ids):
        area, _, number = clause_id.partition("-")
        if areas and areas[-1] == area and runs[-1][-1] + 1 == int(number):
            runs[-1].append(int(number))
        else:
            areas.append(area)
            runs.append([int(number)])
    shown = []
    for area, run in zip(areas, runs, strict=True):
        shown += [f"{area}-{run[0]} to {run[-1]}"] if len(run) > 2 else [f"{area}-{number}" for number in run]
    return ", ".join(shown)


def _reason(check: CheckRecord) -> str:
    text = check.text.strip().splitlines()[0] if check.text.strip() else check.outcome
    example = beginning(" ".join(check.example.split()), _EXAMPLE_LIMIT)
    return f"{text}  [{example}]" if example else text


def worth(results: RunResults) -> list[str]:
    """What this run can and cannot show."""
    facts = results.facts
    lines = []
    if facts["fault"]:
        lines.append(f"The fault {facts['fault']} was in force: this run says something about the suite, nothing about a backend.")
    if facts["no_device_reason"] is not None:
        lines.append(f"No device was used ({facts['no_device_reason']}): only the host tier ran. This certifies nothing.")
    elif facts["simulated"]:
        lines.append("The devices were simulated: this shows that the suite and the reference work. It certifies no hardware.")
    if not results.is_complete:
        lines.append("The run was interrupted: what was not reached is listed as not run. This certifies nothing.")
    return lines
