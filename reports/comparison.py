"""Two reports of one contract, clause by clause.

For: what a change of driver, adapter or PyTorch did. Not for: reports under different revisions of the contract, whose ids may mean other
things, nor for whether either report holds (`verification/`).
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reports.errors import ComparisonError
from reports.model import ClauseResult, Report
from reports.untrusted_text import markdown, printable

FORMAT = "accelerator-conformance-comparison/1"
_GOOD = frozenset({"pass"})
_BAD = frozenset({"fail", "flaky", "harness-error", "known-failure", "waived"})
_UNSUPPORTED = frozenset({"unsupported"})


class Kind(str, enum.Enum):
    """What became of a clause, in the order in which a reader wants to know."""

    REGRESSION = "regression"
    NO_LONGER_CHECKED = "no longer checked"
    NEWLY_UNSUPPORTED = "newly unsupported"
    FIX = "fix"
    NEWLY_SUPPORTED = "newly supported"
    NEWLY_CHECKED = "newly checked"
    STILL_FAILING = "still failing, otherwise"

    @property
    def meaning(self) -> str:
        """In words."""
        return _MEANINGS[self]


_MEANINGS = {
    Kind.REGRESSION: "does not hold now, and was not known to fail before",
    Kind.NO_LONGER_CHECKED: "had a verdict before and has none now",
    Kind.NEWLY_UNSUPPORTED: "the backend no longer claims the capability",
    Kind.FIX: "failed before and passes now",
    Kind.NEWLY_SUPPORTED: "was unsupported before and passes now",
    Kind.NEWLY_CHECKED: "had no verdict before",
    Kind.STILL_FAILING: "failed before and fails now, with another outcome",
}


@dataclass(frozen=True)
class Change:
    """One clause whose outcome is another one now. `said` is the reason that the newer report gives."""

    clause: str
    level: str
    kind: Kind
    old: str
    new: str
    said: str


@dataclass(frozen=True)
class Comparison:
    """All changes, and how status and levels went."""

    old: str
    new: str
    revision: str
    changes: tuple[Change, ...]
    unchanged: int
    levels: tuple[tuple[str, str, str], ...]
    """Name, state before, state now, of levels whose state changed; the status is listed as the level `status`."""

    @property
    def regressions(self) -> tuple[Change, ...]:
        """Changes for the worse that a gate should stop."""
        return tuple(change for change in self.changes if change.kind is Kind.REGRESSION)

    def as_data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "format": FORMAT,
            "old": self.old,
            "new": self.new,
            "contract_revision": self.revision,
            "regressions": len(self.regressions),
            "unchanged": self.unchanged,
            "levels": [{"name": name, "old": old, "new": new} for name, old, new in self.levels],
            "changes": [vars(change) | {"kind": change.kind.value} for change in self.changes],
        }

    def to_json(self) -> str:
        """The JSON document, ending in a newline."""
        return json.dumps(self.as_data(), indent=1) + "\n"

    def to_markdown(self) -> str:
        """For a pull request, ending in a newline."""
        count = len(self.regressions)
        head = f"### Conformance: {count} regression{'' if count == 1 else 's'}, contract {markdown(self.revision)}"
        lines = [head, "", f"{markdown(self.old)} → {markdown(self.new)}; {self.unchanged} clauses unchanged."]
        if self.levels:
            lines += ["", "| | before | now |", "|---|---|---|", *(_row(*level) for level in self.levels)]
        if self.changes:
            lines += ["", "| clause | level | change | before | now | reason |", "|---|---|---|---|---|---|"]
            lines += [_row(each.clause, each.level, each.kind.value, each.old, each.new, each.said) for each in self.changes]
        return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(markdown(cell) for cell in cells)} |"


def compare(old: Report, new: Report) -> Comparison:
    """What changed from `old` to `new`.

    Raises:
        ComparisonError: they are of different revisions of the contract.
    """
    for name in ("contract_revision", "contract_digest"):
        first, second = printable(getattr(old.suite, name)), printable(getattr(new.suite, name))
        if first != second:
            raise ComparisonError(
                f"the {name} is {first} in the first report and {second} in the second, so a clause's id may mean something else there."
                " Compare reports of one contract."
            )
    before_by_id = {clause.id: clause for clause in old.clauses}
    said = {check.name: check.said or "" for check in new.checks}
    changes = []
    for clause in new.clauses:
        before = before_by_id.get(clause.id)
        was = before.outcome if before else "not-yet-checked"
        kind = kind_of(was, clause.outcome)
        if kind is not None:
            changes.append(Change(clause.id, clause.level, kind, was, clause.outcome, _reason(clause, said)))
    for clause_id in before_by_id.keys() - {clause.id for clause in new.clauses}:
        gone = before_by_id[clause_id]
        changes.append(
            Change(gone.id, gone.level, Kind.NO_LONGER_CHECKED, gone.outcome, "not-run", "the clause is not in the report")
        )
    order = list(Kind)
    return Comparison(
        old=_title(old),
        new=_title(new),
        revision=printable(new.suite.contract_revision),
        changes=tuple(sorted(changes, key=lambda change: order.index(change.kind))),
        unchanged=len(new.clauses) - sum(change.said != "the clause is not in the report" for change in changes),
        levels=tuple(_level_changes(old, new)),
    )


def kind_of(old: str, new: str) -> Kind | None:
    """What a change of outcome is; None for none that matters."""
    if old == new:
        return None
    if new in _BAD:
        return Kind.STILL_FAILING if old in _BAD else Kind.REGRESSION
    if new in _UNSUPPORTED:
        return Kind.NEWLY_UNSUPPORTED if old in _GOOD | _BAD else Kind.NEWLY_CHECKED
    if new in _GOOD:
        return Kind.FIX if old in _BAD else Kind.NEWLY_SUPPORTED if old in _UNSUPPORTED else Kind.NEWLY_CHECKED
    return Kind.NO_LONGER_CHECKED if old in _GOOD | _BAD | _UNSUPPORTED else None


def _reason(clause: ClauseResult, said: dict[str, str]) -> str:
    texts = (said.get(name, "").strip() for name in clause.checks)
    return printable(next((text.partition("\n")[0] for text in texts if text), ""))


def _level_changes(old: Report, new: Report) -> Iterator[tuple[str, str, str]]:
    if old.verdict.status != new.verdict.status:
        yield "status", old.verdict.status, new.verdict.status
    before = {level.name: level.state for level in old.verdict.levels}
    for level in new.verdict.levels:
        if before.get(level.name) not in (None, level.state):
            yield f"level {level.name}", before[level.name], level.state


def _title(report: Report) -> str:
    return printable(
        f"{report.declared.product or report.backend.name} ({report.run.started}, {report.verdict.status})", longest=120
    )
