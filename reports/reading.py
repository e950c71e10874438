"""A report from a stranger, as typed data.

For: every command that reads reports. Not for: whether what it says holds together (`verification/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pydantic

from reports.errors import ArchiveError, RenderingError, ReportError, ReportFormatError, SchemaError
from reports.model import FORMAT, CheckResult, Report
from reports.rendering import REPORT, render_all
from reports.safe_archive import DEFAULT_LIMITS, read_file, read_package
from reports.strict_json import parse
from reports.untrusted_text import printable

_SHOWN_VIOLATIONS = 20
_MOST_RENDERED = 256 << 20
_MOST_MATCHED = 20_000_000  # characters of patterns × characters of names
_AS_TEXT, _A_CELL = 20, 500  # rendered bytes a byte of a check, and a sequence on a rank


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
        report = Report.from_bytes(data)
    except pydantic.ValidationError as error:
        found_errors = error.errors(include_url=False, include_context=False, include_input=False)
        violations = [
            ("".join(f"/{printable(str(part), longest=60)}" for part in each["loc"]), printable(each["msg"]))
            for each in found_errors[:_SHOWN_VIOLATIONS]
        ]
        raise SchemaError(REPORT, violations, len(found_errors) - len(violations)) from None
    _check_cost(report)
    return report


def render_untrusted(data: bytes) -> dict[str, bytes]:
    """Every file of the package, from a `report.json` that `report_in` has read.

    Raises:
        RenderingError: a field keeps the schema and yet cannot be shown.
    """
    try:
        return render_all(data)
    except (ReportError, ValueError, LookupError, ArithmeticError, TypeError, RecursionError) as error:
        raise RenderingError(printable(f"{REPORT} cannot be rendered: {type(error).__name__}: {error}")) from error


def _check_cost(report: Report) -> None:
    """Refuse what is small to read and costs a reader much to work with."""
    cost = _cost_of_rendering(report)
    if cost > _MOST_RENDERED:
        raise SchemaError(REPORT, [("", f"would be rendered as some {cost >> 20} MiB; at most {_MOST_RENDERED >> 20} are")], 0)
    if report.exceptions is not None:
        # Every entry's pattern is matched with every device's name, and a problem of an entry names the devices.
        names = sum(len(device.name or "") + 1 for device in report.host.devices)
        patterns = sum(len(entry.device) + 1 for entry in report.exceptions.entries)
        if names * patterns > _MOST_MATCHED:
            raise SchemaError(REPORT, [("/exceptions", "too many entries for so many devices")], 0)


def _cost_of_rendering(report: Report) -> int:
    """Bytes that the rendered files will have at most, roughly: a check is shown under each of its clauses, and a picture is much larger
    than what it is drawn from."""
    cost = {check.name: _cost_of_check(check) for check in report.checks}
    return sum(cost.get(name, 0) for clause in report.clauses for name in clause.checks)


def _cost_of_check(check: CheckResult) -> int:
    layout = check.failure.layout if check.failure is not None else None
    ranks = layout.tensor_parallel_size * layout.context_parallel_size if layout is not None else 0
    cells = ranks * len(layout.sequences) if layout is not None else 0
    return _AS_TEXT * len(check.model_dump_json()) + _A_CELL * cells
