"""The command `accelerator-conformance compare`.

For: showing what changed between two reports. Not for: finding it (`reports.comparison`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.table import Table

from reports.commands.console import REPORT_PATH, console, write_document
from reports.comparison import Comparison, Kind
from reports.comparison import compare as compare_reports
from reports.reading import ReadReport, read_report
from reports.untrusted_text import plain
from reports.verification.examining import verify_files

_STYLES = {Kind.REGRESSION: "bold red", Kind.NO_LONGER_CHECKED: "yellow", Kind.NEWLY_UNSUPPORTED: "yellow", Kind.FIX: "green"}


@click.command()
@click.argument("old", type=REPORT_PATH)
@click.argument("new", type=REPORT_PATH)
@click.option("--json", "form", flag_value="json", help="One JSON document.")
@click.option("--markdown", "form", flag_value="markdown", help="Markdown, for a pull request.")
def compare(old: Path, new: Path, form: str | None) -> None:
    """What changed from the report OLD to the report NEW, clause by clause.

    Exit code 0 without regressions, 1 with, 2 where the reports cannot be read or are of different contracts.
    """
    before, now = read_report(old), read_report(new)
    _warn(before)
    _warn(now)
    comparison = compare_reports(before.report, now.report)
    if form == "json":
        write_document(comparison.to_json())
    elif form == "markdown":
        write_document(comparison.to_markdown())
    else:
        _show(comparison)
    sys.exit(1 if comparison.regressions else 0)


def _warn(read: ReadReport) -> None:
    """Say on standard error when what is compared does not hold together."""
    if read.is_package and verify_files(read.files, str(read.path)).findings:
        click.echo(f"warning: {read.path} does not hold; see accelerator-conformance verify", err=True)


def _show(comparison: Comparison) -> None:
    out = console()
    out.print(plain(f"{comparison.old} → {comparison.new}, contract {comparison.revision}", "bold", longest=300))
    for name, before, now in comparison.levels:
        out.print(plain(f"{name}: {before} → {now}"))
    if comparison.changes:
        table = Table()
        for heading in ("clause", "level", "change", "before", "now"):
            table.add_column(heading, no_wrap=True)
        table.add_column("reason")
        for change in comparison.changes:
            cells = (change.clause, change.level, change.kind.value, change.old, change.new, change.said)
            table.add_row(*(plain(cell, _STYLES.get(change.kind, "")) for cell in cells))
        out.print(table)
    count = len(comparison.regressions)
    out.print(
        f"{count} regression{'' if count == 1 else 's'}, {len(comparison.changes)} changes, {comparison.unchanged} clauses unchanged."
    )
