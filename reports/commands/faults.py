"""The command `accelerator-conformance faults`.

For: reading the catalogue of faults without putting one in force. Not for: the faults (`fakes.faults`).
"""

from __future__ import annotations

import json

import click
from rich.table import Table

from reports.commands.console import Unanswered, console


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def faults(as_json: bool) -> None:
    """List the faults that --fault=ID puts in force; each must make the suite fail."""
    try:
        from fakes.faults import CATALOGUE
    except ImportError as error:
        raise Unanswered(f"the simulated devices cannot be imported: {error}") from error
    rows = [
        {"id": fault.id, "clauses": list(fault.clauses), "seen_in": fault.seen_in, "summary": fault.summary}
        for fault in CATALOGUE.values()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(title=f"{len(rows)} faults: pytest conformance --backend=fake-musa --fault=ID")
    for column in ("id", "breaks", "seen in"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it does", min_width=30)
    for row in rows:
        table.add_row(str(row["id"]), ", ".join(row["clauses"]), str(row["seen_in"]), str(row["summary"]))
    console().print(table)
