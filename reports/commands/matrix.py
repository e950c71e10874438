"""The command `accelerator-conformance matrix`.

For: many reports side by side. Not for: the table (`reports.matrix`).
"""

from __future__ import annotations

from pathlib import Path

import click

from reports.commands.console import REPORT_PATH, console, write_document, write_text
from reports.matrix import make_matrix, to_html, to_markdown, to_terminal
from reports.reading import read_report
from reports.verification.examining import verify_files


@click.command()
@click.argument("paths", type=REPORT_PATH, nargs=-1, required=True)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page that fetches nothing to this file.")
@click.option(
    "--markdown", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), help="Write Markdown to this file, - for here."
)
def matrix(paths: tuple[Path, ...], html: Path | None, markdown: Path | None) -> None:
    """Show the packages at PATHS side by side: backends across, areas down."""
    reports = []
    for path in paths:
        read = read_report(path)
        reports.append((read.report, not verify_files(read.files, str(path)).findings))
    made = make_matrix(reports)
    if html is not None:
        write_text(html, to_html(made))
    if markdown is not None and str(markdown) != "-":
        write_text(markdown, to_markdown(made))
    if markdown is not None and str(markdown) == "-":
        write_document(to_markdown(made))
    elif html is None and markdown is None:
        console().print(to_terminal(made))
