"""Typed errors of the suite itself.

    ConformanceError
    ├── BackendNameError      --backend names nothing that this machine knows
    ├── FactoryError          --accelerator, --normalizer or --aligner names code that cannot be loaded
    ├── OptionError           an option's value is not legal
    ├── ClauseViolation       a check found the subject wrong (also an AssertionError)
    ├── ChildFailed           a child program raised; its traceback is in the text
    ├── ChildDied             a child process ended by a signal or without an answer
    ├── ChildTimeout          a child process did not answer in time and was ended
    └── CheckEnded            a check ended without a verdict on the subject
        ├── Unsupported       the backend does not have the ability; carries the evidence
        ├── NotRun            a prerequisite is missing; carries the reason
        └── NotCheckable      the runtime exposes nothing to check against; carries the reason

Not for: what a backend raises; that is caught and reported under a clause.
"""

from __future__ import annotations

import pytest


class ConformanceError(Exception):
    """Base of every error that the suite raises on purpose."""


class BackendNameError(ConformanceError):
    """`--backend` names nothing that this machine knows."""


class FactoryError(ConformanceError):
    """`--accelerator`, `--normalizer` or `--aligner` names code that cannot be loaded or that raised."""


class OptionError(ConformanceError):
    """An option's value is not legal."""


class ClauseViolation(ConformanceError, AssertionError):
    """A check found the subject wrong. The message says what was asked, what came and what was due."""


class ChildFailed(ConformanceError):
    """A child program raised. `child_type` is the exception's class name; the text holds the child's traceback."""

    def __init__(self, message: str, child_type: str = "") -> None:
        super().__init__(message)
        self.child_type = child_type


class ChildDied(ConformanceError):
    """A child process ended by a signal, or without an answer."""


class ChildTimeout(ConformanceError):
    """A child process did not answer in time and was ended."""


class CheckEnded(pytest.skip.Exception):
    """A check ended without a verdict. pytest stops the check as for a skip; the plugin then reports the real outcome."""

    def __init__(self, text: str) -> None:
        super().__init__(msg=text, _use_item_location=True)
        self.text = text


class Unsupported(CheckEnded):
    """The backend does not have the ability; `text` is the evidence."""


class NotRun(CheckEnded):
    """A prerequisite is missing; `text` is the reason."""


class NotCheckable(CheckEnded):
    """The runtime exposes nothing to check against; `text` is the reason."""
