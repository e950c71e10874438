"""The command `accelerator-conformance render`.

For: making every file of a package again from a `report.json`. Not for: what is in the files (`reports.rendering`).
"""

from __future__ import annotations

from pathlib import Path

import click

from reports.commands.console import REPORT_PATH, Unanswered
from reports.package import write_package
from reports.reading import read_report, render_untrusted
from reports.rendering import REPORT


@click.command()
@click.argument("path", type=REPORT_PATH)
@click.argument("target", type=REPORT_PATH)
def render(path: Path, target: Path) -> None:
    """Render the report at PATH (a package or a report.json) anew into the package TARGET: a new or empty folder, or a name in .tar.gz.

    A signature is not taken over: it is over the files that were signed.
    """
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise Unanswered(f"{target}: something is there, and a signature in it would be lost; name what is new, or an empty folder")
    read = read_report(path)
    files = render_untrusted(read.files[REPORT])
    write_package(target, files)
    click.echo(f"{len(files)} files written to {target}")
