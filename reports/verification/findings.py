"""What a verification says: steps, findings, and the whole as data.

For: everything that shows a verification. Reasons are stable ids; messages may change. Not for: what is looked at (the steps).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reports.untrusted_text import printable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from reports.model import Report
    from reports.verification.contract import Contract

FORMAT = "accelerator-conformance-verification/1"
MOST_FINDINGS = 200
"""Findings, and notes, of one step that are kept; of further findings only the number."""


@dataclass(frozen=True)
class Finding:
    """Something that does not hold. `reason` is a stable id, `where` a file and a place in it; all are fit to print."""

    reason: str
    where: str
    message: str

    @classmethod
    def about(cls, reason: str, where: str, message: str) -> Finding:
        """A finding whose texts may hold what a stranger wrote."""
        return cls(reason, printable(where, longest=160), printable(message, longest=600))


@dataclass(frozen=True)
class Note:
    """Something that a reader should know about a step that holds."""

    text: str


@dataclass(frozen=True)
class NotChecked:
    """Why a step could not be carried out."""

    text: str


Said = Finding | Note | NotChecked


@dataclass(frozen=True)
class Examined:
    """The package under examination."""

    files: dict[str, bytes]
    report: Report
    contract: Contract
    key: Ed25519PublicKey | None = None


@dataclass(frozen=True)
class Step:
    """One question. `find` yields what it has to say; no finding means that it holds."""

    id: str
    title: str
    find: Callable[[Examined], Iterator[Said]]


class State(str, enum.Enum):
    """What became of a step."""

    HOLDS = "holds"
    FAILS = "does-not-hold"
    NOT_CHECKED = "not-checked"


@dataclass(frozen=True)
class StepResult:
    """One step's answer. `more` counts the findings past those kept."""

    id: str
    title: str
    state: State
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    more: int = 0


class Verdict(str, enum.Enum):
    """The whole answer; the exit code goes with it."""

    HOLDS = "holds"
    FAILS = "does-not-hold"
    UNREADABLE = "unreadable"

    @property
    def exit_code(self) -> int:
        """0, 1 or 2."""
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Verification:
    """All of it. `headline` is the report's first line as recomputed, empty where the report cannot be read."""

    path: str
    verdict: Verdict
    headline: str
    steps: tuple[StepResult, ...]
    says: tuple[str, ...] = field(default=())
    """What the answer means and what it does not, in sentences."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that were kept."""
        return tuple(finding for step in self.steps for finding in step.findings)

    @property
    def reasons(self) -> set[str]:
        """The ids of all findings."""
        return {finding.reason for finding in self.findings}

    def as_data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "format": FORMAT,
            "path": self.path,
            "verdict": self.verdict.value,
            "headline": self.headline,
            "steps": [
                {
                    "id": step.id,
                    "title": step.title,
                    "state": step.state.value,
                    "findings": [vars(finding) for finding in step.findings],
                    "findings_left_out": step.more,
                    "notes": list(step.notes),
                }
                for step in self.steps
            ],
            "says": list(self.says),
        }


def take(step: Step, examined: Examined) -> StepResult:
    """The answer of one step."""
    findings: list[Finding] = []
    notes: list[str] = []
    total, is_checked = 0, True
    for said in step.find(examined):
        if isinstance(said, Finding):
            total += 1
            if total <= MOST_FINDINGS:
                findings.append(said)
        else:
            is_checked = is_checked and not isinstance(said, NotChecked)
            if len(notes) < MOST_FINDINGS:
                notes.append(printable(said.text, longest=600))
    state = State.FAILS if findings else State.HOLDS if is_checked else State.NOT_CHECKED
    return StepResult(step.id, step.title, state, tuple(findings), tuple(notes), total - len(findings))
