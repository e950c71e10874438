"""A run's results as a typed model, and its JSON.

For: what `--results=FILE.json` holds: what names the run, and clause by clause the outcome, the checks, the number of examples, and the
smallest failing example. Not for: gathering them (`conformance.recording`).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from conformance.clauses import CLAUSES, Clause
from conformance.recording import CheckRecord, RunResults

FORMAT = "accelerator-conformance-results/1"
"""Names the shape of the JSON document; it changes whenever a field is added, renamed or dropped."""


@dataclass(frozen=True, kw_only=True)
class ResultsCheck:
    """One check of a clause; see `conformance.recording.CheckRecord` for the fields."""

    check: str
    tier: str
    outcome: str
    text: str
    smallest_failing_example: str
    examples_run: int
    examples_discarded: int
    replay: str

    @classmethod
    def from_record(cls, record: CheckRecord) -> ResultsCheck:
        """The report of one record."""
        return cls(
            check=record.check,
            tier=record.tier,
            outcome=record.outcome,
            text=record.text,
            smallest_failing_example=record.example,
            examples_run=record.examples_run,
            examples_discarded=record.examples_discarded,
            replay=record.replay,
        )


@dataclass(frozen=True, kw_only=True)
class ResultsClause:
    """One clause: what the contract says of it, and what the run found."""

    id: str
    level: str
    subject: str
    tiers: tuple[str, ...]
    capability: str | None
    outcome: str
    examples_run: int
    checks: tuple[ResultsCheck, ...]

    @classmethod
    def from_result(cls, clause: Clause, outcome: str, records: list[CheckRecord]) -> ResultsClause:
        """The report of one clause."""
        return cls(
            id=clause.id,
            level=clause.level.value,
            subject=clause.subject.value,
            tiers=tuple(tier.value for tier in clause.tiers),
            capability=clause.capability,
            outcome=outcome,
            examples_run=sum(record.examples_run for record in records),
            checks=tuple(ResultsCheck.from_record(record) for record in records),
        )


@dataclass(frozen=True, kw_only=True)
class ResultsFile:
    """One run. `run` holds the facts that name it; `counts` the number of clauses by outcome."""

    format: str
    complete: bool
    run: dict[str, Any]
    counts: dict[str, int]
    clauses: tuple[ResultsClause, ...]

    @classmethod
    def from_results(cls, results: RunResults) -> ResultsFile:
        """The report of what the suite gathered."""
        clauses = tuple(
            ResultsClause.from_result(CLAUSES[result.id], result.outcome.value, result.checks)
            for result in results.clauses.values()
        )
        return cls(
            format=FORMAT,
            complete=results.is_complete,
            run=dict(results.facts),
            counts=dict(sorted(Counter(clause.outcome for clause in clauses).items())),
            clauses=clauses,
        )

    def to_json(self) -> str:
        """The JSON document, with a final newline; the same report gives the same bytes."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
