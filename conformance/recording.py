"""What is remembered of each check, and how a run's checks become clauses' outcomes.

For: turning what pytest saw into outcomes, counting Hypothesis examples, and plain data that survives pytest-xdist. Not for: showing
(`summary.py`) or storing (`reports`).
"""

from __future__ import annotations

import functools
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

import hypothesis.errors
from _pytest.outcomes import Failed

from conformance.check_endings import CheckEnded, NotCheckable, NotRun, Unsupported
from conformance.clauses import CLAUSES, Tier
from conformance.errors import ChildDied, ChildTimeout, ClauseViolation
from conformance.isolation import Journal
from conformance.outcomes import Outcome, combine

_SHOWN = "_conformance_shown"
_NOTE_START = re.compile("(Falsifying example|Failing test case): *")  # as older and newer Hypothesis head it
_SHRINK_SECONDS = 15.0  # examples on ranks that wait for each other in vain take seconds each
_ENDINGS: Mapping[type[CheckEnded], Outcome] = {
    Unsupported: Outcome.UNSUPPORTED,
    NotRun: Outcome.NOT_RUN,
    NotCheckable: Outcome.NOT_CHECKABLE,
}


class CollectedCheck(TypedDict):
    """What is known of a check before it runs; plain data."""

    clauses: list[str]
    tier: str


@dataclass
class CheckRecord:
    """One check in one run; plain data.

    `tier` is what the check needs, which can be more than its clauses do. `text` is the failure's message, the evidence of "unsupported" or
    the reason of "not run"; `example` the smallest failing example as Hypothesis prints it; `examples_run` and `examples_discarded` count
    what was executed, 0 for checks that are no properties. `shown` is what a failure brought to be drawn or replayed, by kind: `program`
    (for --replay-program), `timeline`, `layout`.
    """

    check: str
    clauses: list[str]
    tier: str
    outcome: str
    text: str = ""
    example: str = ""
    examples_run: int = 0
    examples_discarded: int = 0
    replay: str = ""
    seconds: float = 0.0
    shown: dict[str, Any] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """The keyword arguments that make an equal record."""
        return asdict(self)


@dataclass
class ClauseResult:
    """One clause in one run."""

    id: str
    outcome: Outcome
    checks: list[CheckRecord]


@dataclass
class RunResults:
    """Everything that a run found. `facts` holds what names the run: backend, contract revision, effort, seed, fault, argv, versions."""

    facts: dict[str, Any]
    clauses: dict[str, ClauseResult] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether every check that was collected has been reported."""
        return not self.interrupted


def assemble(
    facts: dict[str, Any], records: Mapping[str, CheckRecord], collected: Mapping[str, CollectedCheck], interrupted: bool
) -> RunResults:
    """Clause by clause results from the records; a collected check without a record was not run."""
    checks: dict[str, list[CheckRecord]] = {clause_id: [] for clause_id in CLAUSES}
    for name, check in sorted(collected.items()):
        record = records.get(name)
        if record is None:
            reason = "the run was interrupted before it" if interrupted else "deselected on the command line"
            record = CheckRecord(name, check["clauses"], check["tier"], Outcome.NOT_RUN.value, reason)
        for clause_id in check["clauses"]:
            checks[clause_id].append(record)
    results = RunResults(facts, interrupted=interrupted)
    for clause_id, found in checks.items():
        results.clauses[clause_id] = ClauseResult(clause_id, _outcome_of_clause(clause_id, found), found)
    return results


def _outcome_of_clause(clause_id: str, records: list[CheckRecord]) -> Outcome:
    """The clause's outcome; not run where its checks were not even collected.

    A check that needs more than its clause does, and could not run here, does not count: where a clause is for one device, a host with one
    device can meet it.
    """
    if not records and CLAUSES[clause_id].has_check:
        return Outcome.NOT_RUN
    own_tier = max(tier.order for tier in CLAUSES[clause_id].tiers)
    counted = [record for record in records if record.outcome != Outcome.NOT_RUN.value or Tier(record.tier).order <= own_tier]
    return combine(Outcome(record.outcome) for record in counted or records)


def outcome_of_error(error: BaseException, phase: str) -> Outcome:
    """What an exception out of a check means; `phase` is pytest's `setup`, `call` or `teardown`."""
    if isinstance(error, CheckEnded):
        return _ENDINGS[type(error)]
    if isinstance(error, hypothesis.errors.Flaky):
        return Outcome.FLAKY
    if isinstance(error, hypothesis.errors.HypothesisException) or (
        phase != "call" and not isinstance(error, (ChildDied, ChildTimeout, ClauseViolation))
    ):
        return Outcome.HARNESS_ERROR
    return Outcome.FAIL


def shown_by(error: BaseException) -> dict[str, Any]:
    """What a failure brought to be drawn or replayed, as plain data by kind: `program`, `timeline`, `layout`."""
    shown = dict(getattr(error, _SHOWN, {}))
    program, timeline = getattr(error, "program", None), getattr(error, "timeline", None)
    if isinstance(program, str):
        shown["program"] = json.loads(program)
    if timeline is not None and hasattr(timeline, "to_data"):
        shown["timeline"] = timeline.to_data()
    return shown


def falsifying_example(error: BaseException) -> str:
    """The smallest failing example that Hypothesis noted on an exception, with what it drew on the way; empty where it noted none."""
    notes = getattr(error, "__notes__", ())
    for note in notes:
        start = _NOTE_START.match(note)
        if start is not None:
            arguments = [line for line in note[start.end() :].splitlines() if not line.strip().startswith("backend=<")]
            return "\n".join([*arguments, *(drawn for drawn in notes if drawn.startswith("Draw "))])
    return ""


class ExampleCounter:
    """Counts the executions of one property, and ends a search for a smaller failing example that takes too long."""

    def __init__(self) -> None:
        self.run = 0
        self.discarded = 0
        self._timed_out: Failed | None = None
        self._failing: set[str] = set()
        self._shrinking_ends = math.inf

    @contextmanager
    def counting(self, test: Callable[..., Any], journal: Journal | None = None) -> Iterator[None]:
        """Count, and write each example down before it runs, while the block runs; nothing for tests without Hypothesis."""
        handle = getattr(test, "hypothesis", None)
        if handle is None:
            yield
            return
        original = handle.inner_test

        @functools.wraps(original)
        def counted(*arguments: Any, **keywords: Any) -> Any:
            if self._timed_out is not None:
                raise self._timed_out  # pytest-timeout watches a check once: looking for a smaller input could hang again, unwatched
            if time.monotonic() > self._shrinking_ends and repr(keywords) not in self._failing:
                return None  # not tried, and so not found to fail: the smallest one so far stands
            self.run += 1
            if journal is not None:
                journal.write(keywords)
            try:
                return original(*arguments, **keywords)
            except hypothesis.errors.UnsatisfiedAssumption:
                self.discarded += 1
                raise
            except Failed as failure:
                self._timed_out = failure
                raise
            except CheckEnded:
                raise
            except Exception as error:
                self._failing.add(repr(keywords))
                self._shrinking_ends = min(self._shrinking_ends, time.monotonic() + _SHRINK_SECONDS)
                for value in keywords.values():
                    if hasattr(value, "to_picture"):
                        setattr(error, _SHOWN, value.to_picture())
                raise

        handle.inner_test = counted
        try:
            yield
        finally:
            handle.inner_test = original
