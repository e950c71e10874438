"""Typed errors of the reports.

ReportError
├── ResultsFileError     a results file cannot be written or read
├── PackageError         a package cannot be written
├── SigningError         a key cannot be used, or a signature does not hold
├── KnownFailuresError   a file of known failures cannot be read
├── RenderingError       a report holds what cannot be rendered
├── ComparisonError      two reports cannot be compared
├── ReplayError          a run cannot be made again here
└── UnreadableError      something that a stranger made cannot be read safely
    ├── StrictJsonError    no JSON, ambiguous JSON, or JSON past the limits
    ├── ArchiveError       no package, or one that is not made as packages are
    ├── ReportFormatError  a report of another version of the format, or of none
    └── SchemaError        a report that breaks the published schema
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


class RenderingError(ReportError):
    """A report holds what cannot be rendered, such as a time that is none; the message says what."""


class ComparisonError(ReportError):
    """Two reports cannot be compared; the message says why."""


class ReplayError(ReportError):
    """A run cannot be made again here; the message says why, and what would help."""


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


class ReportFormatError(UnreadableError):
    """A report of another version of the format, or of none."""


class SchemaError(UnreadableError):
    """A report that breaks the published schema. `violations` are places and messages, `more` the number of those left out."""

    def __init__(self, file: str, violations: list[tuple[str, str]], more: int) -> None:
        place, message = violations[0]
        super().__init__("schema", f"{file}{place}", message)
        self.file, self.violations, self.more = file, violations, more
