"""Typed errors of the suite itself.

    ConformanceError
    ├── BackendNameError      --backend names nothing that this machine knows
    ├── FactoryError          --accelerator, --normalizer or --aligner names code that cannot be loaded
    ├── OptionError           an option's value is not legal
    ├── ProgramError          a stream program's document is wrong; says what and where
    ├── ClauseViolation       a check found the subject wrong (also an AssertionError)
    ├── ChildFailed           a child program raised; its traceback is in the text
    ├── ChildDied             a child process ended by a signal or without an answer
    └── ChildTimeout          a child process did not answer in time and was ended

Not for: what a backend raises, which is caught and reported under a clause, or the endings of a check without a verdict
(`check_endings.py`).
"""

from __future__ import annotations


class ConformanceError(Exception):
    """Base of every error that the suite raises on purpose."""


class BackendNameError(ConformanceError):
    """`--backend` names nothing that this machine knows."""


class FactoryError(ConformanceError):
    """`--accelerator`, `--normalizer` or `--aligner` names code that cannot be loaded or that raised."""


class OptionError(ConformanceError):
    """An option's value is not legal."""


class ProgramError(ConformanceError):
    """A stream program's document is wrong; the text says what is wrong where, and what would be right."""


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
