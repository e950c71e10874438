"""The command `accelerator-conformance`.

For: reading the contract, reports and the catalogue of faults. Each command is a module of `reports.commands`. Not for: running the suite
(`pytest conformance`, or `python -m conformance`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
import traceback
from typing import Any

import click

from reports.commands.console import Unanswered
from reports.errors import ReportError
from reports.untrusted_text import printable_lines

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


_INTERRUPTED = 130  # as shells have it


class _Commands(click.Group):
    """Imports a command when it is asked for, and sees to it that exit code 1 is an answer and nothing else."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Whatever keeps it from giving its answer is exit code 2, this project's own errors as one line."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character shows its number
        try:
            return super().invoke(ctx)
        except ReportError as error:
            raise Unanswered(str(error)) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)
        except OSError as error:
            # What is still in the buffer would fail again at the end, with an exit code of its own.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end of the process
            raise Unanswered(f"cannot write the answer: {error.strerror or error}") from error
        except Exception as error:
            for line in printable_lines(traceback.format_exc(), most=200):
                click.echo(line, err=True)
            raise Unanswered("this is a defect of this command, and says nothing about what it was given") from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name]), cmd_name)
        return command


def _version() -> str:
    try:
        return importlib.metadata.version("accelerator-conformance")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed: a checkout)"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version())
def main() -> None:
    """Is this accelerator backend right? The suite itself is `python -m conformance --backend=NAME`."""
