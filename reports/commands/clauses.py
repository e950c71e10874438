"""The command `accelerator-conformance clauses`.

For: reading the contract without running anything. Not for: its text (`conformance.contract_text`).
"""

from __future__ import annotations

import click
from rich.table import Table

from conformance import CONTRACT_REVISION
from conformance.clauses import CLAUSES, Clause, UnknownClauseError, get_clause
from reports.commands.console import Unanswered, console, write_document


@click.command()
@click.argument("clause_ids", metavar="[ID]...", nargs=-1)
@click.option("--markdown", is_flag=True, help="The whole contract as the Markdown of docs/contract.md.")
@click.option("--level", type=click.Choice(["MUST", "SHOULD", "MAY"], case_sensitive=False), help="Clauses of this level only.")
def clauses(clause_ids: tuple[str, ...], markdown: bool, level: str | None) -> None:
    """Print the contract, or the clauses named: by id (DEV-4) or by area (DEV)."""
    if markdown:
        from reports.contract_document import render_contract  # imports PyTorch

        write_document(render_contract())
        return
    try:
        chosen = [clause for clause_id in clause_ids for clause in _named(clause_id.upper())] or list(CLAUSES.values())
    except UnknownClauseError as error:
        raise Unanswered(str(error)) from error
    table = Table(title=f"Contract {CONTRACT_REVISION}", show_lines=True)
    for column in ("clause", "level", "tier", "capability", "subject"):
        table.add_column(column, no_wrap=True)
    table.add_column("text", min_width=40)
    for clause in chosen:
        if level is None or clause.level.value == level.upper():
            tiers = ", ".join(tier.value for tier in clause.tiers)
            table.add_row(clause.id, clause.level.value, tiers, clause.capability or "", clause.subject.value, clause.text)
    console().print(table)


def _named(name: str) -> list[Clause]:
    return [clause for clause in CLAUSES.values() if clause.area == name] or [get_clause(name)]
