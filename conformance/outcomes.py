"""The one enumeration of outcomes, and how the outcomes of a clause's checks become the clause's.

For: the suite and the reports alike; the values are spelled the same in JSON. Not for: deciding what a single check's outcome is
(`recording.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Outcome(str, Enum):
    """What is known of a clause or a check after a run."""

    PASS = "pass"
    FAIL = "fail"
    UNSUPPORTED = "unsupported"
    WAIVED = "waived"
    KNOWN_FAILURE = "known-failure"
    FLAKY = "flaky"
    NOT_RUN = "not-run"
    NOT_CHECKABLE = "not-checkable"
    NOT_YET_CHECKED = "not-yet-checked"
    HARNESS_ERROR = "harness-error"

    def __str__(self) -> str:
        return self.value


# The first of these that any check of a clause has is the clause's outcome: a clause whose checks did not all run has not passed,
# and one that passes in part is not unsupported.
_PRECEDENCE = (
    Outcome.FAIL,
    Outcome.FLAKY,
    Outcome.HARNESS_ERROR,
    Outcome.KNOWN_FAILURE,
    Outcome.WAIVED,
    Outcome.NOT_RUN,
    Outcome.PASS,
    Outcome.NOT_CHECKABLE,
    Outcome.UNSUPPORTED,
)

FAILING = frozenset({Outcome.FAIL, Outcome.FLAKY, Outcome.HARNESS_ERROR})
"""Outcomes that make a run exit non-zero."""


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of a clause from those of its checks; `not-yet-checked` where there are none."""
    found = set(outcomes)
    return next((outcome for outcome in _PRECEDENCE if outcome in found), Outcome.NOT_YET_CHECKED)
