"""What the commands share: a terminal that reads no markup out of text, and errors as one line with an exit code.

For: every command. Exit codes: 0, or 1 where a command's answer is no, or 2 where it could not be given. Not for: making text from
strangers fit to print (`reports.untrusted_text`), or which commands there are (`reports.command_line`).
"""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

REPORT_PATH = click.Path(path_type=Path)
"""Where a report is; whether it is there is found out when it is read, with the other ways in which it can be unreadable."""


class Unanswered(click.ClickException):
    """The command could not be carried out."""

    exit_code = 2


def console() -> Console:
    """Wide enough for whole rows where the output is a file or a pipe, where no terminal says how wide it is."""
    made = Console(markup=False, highlight=False, emoji=False)
    return made if made.is_terminal else Console(markup=False, highlight=False, emoji=False, width=160)


def write_document(text: str) -> None:
    """Write a document to standard output: in UTF-8, whatever the terminal speaks."""
    click.echo(text.encode(), nl=False)


def write_text(path: Path, text: str) -> None:
    """Write a file that the user named.

    Raises:
        Unanswered: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Unanswered(f"{path}: cannot write: {error.strerror}") from error
