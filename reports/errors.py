"""Typed errors of the reports.

ReportError
├── ResultsFileError   a results file cannot be written or read
└── UnreadableError    something that a stranger made cannot be read safely
    ├── StrictJsonError    no JSON, ambiguous JSON, or JSON past the limits
    └── ArchiveError       no package, or one that is not made as packages are
"""

from __future__ import annotations


class ReportError(Exception):
    """Base of every error that the reports raise on purpose."""


class ResultsFileError(ReportError):
    """A results file cannot be written or read; the message names the file and the reason."""


class UnreadableError(ReportError):
    """Something that a stranger made cannot be read safely.

    `reason` is a stable id for machines, `where` names the file and the place in it, `message` says what is wrong. All are fit to print.
    """

    def __init__(self, reason: str, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.reason, self.where, self.message = reason, where, message


class StrictJsonError(UnreadableError):
    """No JSON, ambiguous JSON, or JSON past the limits."""


class ArchiveError(UnreadableError):
    """No package, or one that is not made as packages are: links, devices, names that lead elsewhere, bombs, damage."""
