"""The command `accelerator-conformance schema`.

For: validating reports with other tools. Not for: what a schema cannot say (`verify`).
"""

from __future__ import annotations

import click

from reports.commands.console import write_document
from reports.schema import schema_text


@click.command()
def schema() -> None:
    """Print the JSON Schema (2020-12) of report.json."""
    write_document(schema_text())
