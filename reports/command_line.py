"""The command `accelerator-conformance`.

For: reading the contract, reports and the catalogue of faults. Each command is a module of `reports.commands`. Not for: running the suite
(`pytest conformance`, or `python -m conformance`).
"""

from __future__ import annotations

import importlib

import click

_COMMANDS = {  # name: module; imported when used, since some need PyTorch and reading a report does not
    "clauses": "reports.commands.clauses",
    "compare": "reports.commands.compare",
    "faults": "reports.commands.faults",
    "layout": "reports.layout_command",
    "matrix": "reports.commands.matrix",
    "render": "reports.commands.render",
    "schema": "reports.commands.schema",
    "show": "reports.commands.show",
    "verify": "reports.commands.verify",
}


class _Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name]), cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="accelerator-conformance")
def main() -> None:
    """Is this accelerator backend right? The suite itself is `python -m conformance --backend=NAME`."""
