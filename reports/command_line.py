"""The command `accelerator-conformance`.

For: reading the contract and the catalogue of faults without running anything. Not for: running the suite (`pytest conformance`, or
`python -m conformance`).
"""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from conformance import CONTRACT_REVISION
from conformance.clauses import CLAUSES, UnknownClauseError, get_clause
from reports.contract_document import render_contract
from reports.layout_command import layout


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="accelerator-conformance")
def main() -> None:
    """Is this accelerator backend right? The suite itself is `python -m conformance --backend=NAME`."""


@main.command()
@click.argument("clause_ids", metavar="[ID]...", nargs=-1)
@click.option("--markdown", is_flag=True, help="The whole contract as the Markdown of docs/contract.md.")
def clauses(clause_ids: tuple[str, ...], markdown: bool) -> None:
    """Print the contract, or the clauses named."""
    if markdown:
        click.echo(render_contract(), nl=False)
        return
    try:
        chosen = [get_clause(clause_id.upper()) for clause_id in clause_ids] or list(CLAUSES.values())
    except UnknownClauseError as error:
        raise click.ClickException(str(error)) from error
    table = Table(title=f"Contract {CONTRACT_REVISION}", show_lines=True)
    for column in ("clause", "level", "tier", "capability", "subject"):
        table.add_column(column, no_wrap=True)
    table.add_column("text", min_width=40)
    for clause in chosen:
        tiers = ", ".join(tier.value for tier in clause.tiers)
        table.add_row(clause.id, clause.level.value, tiers, clause.capability or "", clause.subject.value, clause.text)
    _console().print(table)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def faults(as_json: bool) -> None:
    """List the faults that --fault=ID puts in force; each must make the suite fail."""
    try:
        from fakes.faults import CATALOGUE
    except ImportError as error:
        raise click.ClickException(f"the simulated devices cannot be imported: {error}") from error
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
    _console().print(table)


main.add_command(layout)


def _console() -> Console:
    # Wide enough for whole rows where the output is a file or a pipe, where no terminal says how wide it is.
    console = Console()
    return console if console.is_terminal else Console(width=160)
