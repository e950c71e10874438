"""A report from a stranger, as typed data.

For: every command that reads reports. Not for: whether what it says holds together (`verification/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pydantic

from reports.errors import ArchiveError, ReportFormatError, SchemaError
from reports.model import FORMAT, Report
from reports.rendering import REPORT
from reports.safe_archive import DEFAULT_LIMITS, read_file, read_package
from reports.strict_json import parse
from reports.untrusted_text import printable

_SHOWN_VIOLATIONS = 20


@dataclass(frozen=True)
class ReadReport:
    """A report and the files that it came with; a bare `report.json` comes alone."""

    path: Path
    files: dict[str, bytes]
    report: Report

    @property
    def is_package(self) -> bool:
        """Whether it came in a folder or an archive."""
        return len(self.files) > 1


def read_report(path: Path) -> ReadReport:
    """The report at `path`: a package (folder or archive), or a `report.json` alone.

    Raises:
        UnreadableError: it cannot be read; SchemaError among them, where it is no report of this format.
    """
    files = {REPORT: read_file(path)} if path.suffix == ".json" and path.is_file() else read_package(path, DEFAULT_LIMITS)
    return ReadReport(path, files, report_in(files))


def report_in(files: dict[str, bytes]) -> Report:
    """The report among a package's files.

    Raises:
        ArchiveError: it is not there.
        StrictJsonError: it cannot be read as JSON.
        ReportFormatError: it is of another version of the format.
        SchemaError: it breaks the published schema.
    """
    if REPORT not in files:
        raise ArchiveError("report-missing", REPORT, "this file is not in the package")
    data = files[REPORT]
    value = parse(data, REPORT)
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        named = printable(found, longest=80) if isinstance(found, str) else "none"
        raise ReportFormatError("report-format", f"{REPORT}/format", f"the format is {named}; this version reads {FORMAT}")
    del value
    try:
        return Report.from_bytes(data)
    except pydantic.ValidationError as error:
        found_errors = error.errors(include_url=False, include_context=False, include_input=False)
        violations = [
            ("".join(f"/{printable(str(part), longest=60)}" for part in each["loc"]), printable(each["msg"]))
            for each in found_errors[:_SHOWN_VIOLATIONS]
        ]
        raise SchemaError(REPORT, violations, len(found_errors) - len(violations)) from None
