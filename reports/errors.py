"""Typed errors of the reports.

ReportError
├── ResultsFileError     a results file cannot be written or read
├── PackageError         a package cannot be written
├── SigningError         a key cannot be used, or a signature does not hold
└── KnownFailuresError   a file of known failures cannot be read
"""

from __future__ import annotations


class ReportError(Exception):
    """Base of every error that the reports raise on purpose."""


class ResultsFileError(ReportError):
    """A results file cannot be written or read; the message names the file and the reason."""


class PackageError(ReportError):
    """A package cannot be written; the message names the place and the reason. What was there before is as it was."""


class SigningError(ReportError):
    """A key cannot be used, or a signature does not hold; the message says which and why."""


class KnownFailuresError(ReportError):
    """A file of known failures cannot be read; the message names the entry and what is legal."""
