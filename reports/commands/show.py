"""The command `accelerator-conformance show`.

For: reading a report in a terminal. Not for: whether it holds (`verify`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from reports.commands.console import REPORT_PATH, console
from reports.model import CheckResult, ClauseResult, Report
from reports.reading import read_report
from reports.untrusted_text import plain, printable_lines

_STYLES = {
    "pass": "green",
    "fail": "bold red",
    "flaky": "bold red",
    "harness-error": "bold red",
    "waived": "yellow",
    "known-failure": "yellow",
}
_FAILED = ("fail", "flaky", "harness-error", "known-failure", "waived")


@click.command()
@click.argument("path", type=REPORT_PATH)
@click.option(
    "--clause", "clauses", multiple=True, metavar="ID", help="Only this clause or area, whatever its outcome; may be given again."
)
def show(path: Path, clauses: tuple[str, ...]) -> None:
    """Show the report at PATH (a package or a report.json): what it is worth, by area, and what failed."""
    report = read_report(path).report
    out = console()
    out.print(plain(report.verdict.headline, "bold", longest=2000))
    wanted = {name.upper() for name in clauses}
    chosen = [clause for clause in report.clauses if clause.id in wanted or clause.id.partition("-")[0] in wanted]
    if wanted and not chosen:
        raise click.UsageError(f"--clause: the report has no {', '.join(plain(name).plain for name in sorted(wanted))}")
    if not wanted:
        _show_facts(report, out)
        _show_areas(report, out)
        _show_levels(report, out)
        chosen = [clause for clause in report.clauses if clause.outcome in _FAILED]
    checks = {check.name: check for check in report.checks}
    for clause in chosen:
        _show_clause(clause, [checks[name] for name in clause.checks if name in checks], out)
    if report.exceptions is not None and not wanted:
        for entry in report.exceptions.entries:
            out.print(
                plain(
                    f"{entry.kind} {entry.clause} on {entry.device}, until {entry.expires}: {entry.reason} ({entry.url})", "yellow"
                )
            )
        for problem in report.exceptions.problems:
            out.print(plain(f"wrong exception: {problem}", "bold red"))


def _show_facts(report: Report, out: Console) -> None:
    run, host = report.run, report.host
    devices = ", ".join(f"{count} × {name}" for name, count in Counter(device.name or "unnamed" for device in host.devices).items())
    rows = {
        "vendor, product": f"{report.declared.vendor}, {report.declared.product}".strip(", "),
        "backend": f"{report.backend.name} ({report.backend.adapter})",
        "devices": devices or report.backend.no_device_reason or "none",
        "driver, runtime": ", ".join(filter(None, (host.driver, host.runtime))),
        "software": f"torch {host.torch}, Python {host.python}, {host.os}, {host.machine}",
        "run": f"{run.started}, {run.seconds:.0f} s, effort {run.effort} ({run.examples} examples), seed {run.seed}; {run.ending}",
        "suite": f"{report.suite.version}, contract {report.suite.contract_revision}, {report.suite.tree}",
        "command line": " ".join(run.argv),
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in rows.items():
        if value:
            table.add_row(plain(name, "dim"), plain(value, longest=600))
    out.print(table)


def _show_areas(report: Report, out: Console) -> None:
    titles = {area.name: area.title for area in report.areas}
    counts: dict[str, Counter[str]] = {}
    for clause in report.clauses:
        counts.setdefault(clause.id.partition("-")[0], Counter())[clause.outcome] += 1
    columns = [outcome for outcome, number in sorted(report.counts.items(), key=lambda item: -item[1]) if number]
    table = Table("area", "clauses")
    for outcome in columns:
        table.add_column(outcome, justify="right")
    for name, count in counts.items():
        cells = (plain(str(count[outcome] or "–"), _STYLES.get(outcome, "") if count[outcome] else "dim") for outcome in columns)
        table.add_row(plain(name), plain(titles.get(name, "")), *cells)
    out.print(table)


def _show_levels(report: Report, out: Console) -> None:
    table = Table("level", "state", "passed", "unsupported", "missing")
    for level in report.verdict.levels:
        missing = ", ".join(level.missing[:12]) + (f" and {len(level.missing) - 12} more" if len(level.missing) > 12 else "")
        style = "green" if level.state == "attained" else ""
        table.add_row(level.name, plain(level.state, style), str(level.passed), str(len(level.unsupported)), plain(missing))
    out.print(table)


def _show_clause(clause: ClauseResult, checks: list[CheckResult], out: Console) -> None:
    out.print(plain(f"{clause.id} {clause.outcome} ({clause.level}, {clause.subject})", _STYLES.get(clause.outcome, "bold")))
    out.print(plain(f"    {clause.text}", "dim", longest=1000))
    for check in checks:
        examples = f", {check.examples_run} examples, {check.examples_discarded} discarded" if check.examples_run else ""
        out.print(plain(f"    {check.name}: {check.outcome}{examples}"))
        for line in printable_lines(check.said or "", most=12):
            if line:
                out.print(plain(f"        {line}", longest=500))
        if check.failure is not None:
            for line in printable_lines(check.failure.program):
                out.print(plain(f"        {line}", "cyan", longest=500))
            out.print(plain(f"        again: {check.failure.replay}", longest=1000))
