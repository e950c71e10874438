"""What the commands share: a terminal that reads no markup out of text, and errors as one line with an exit code.

For: every command. Exit codes: 0, or 1 where a command's answer is no, or 2 where it could not be given. Not for: making text from
strangers fit to print (`reports.untrusted_text`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click
from rich.console import Console

from reports.errors import ReportError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

REPORT_PATH = click.Path(path_type=Path)
"""Where a report is; whether it is there is found out when it is read, with the other ways in which it can be unreadable."""


class Unanswered(click.ClickException):
    """The command could not be carried out."""

    exit_code = 2


def console() -> Console:
    """Wide enough for whole rows where the output is a file or a pipe, where no terminal says how wide it is."""
    made = Console(markup=False, highlight=False, emoji=False)
    return made if made.is_terminal else Console(markup=False, highlight=False, emoji=False, width=160)


def one_line_errors(command: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Turn this project's own errors into one line and exit code 2."""

    @functools.wraps(command)
    def guarded(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        try:
            return command(*arguments, **keywords)
        except ReportError as error:
            raise Unanswered(str(error)) from error

    return guarded


def write_text(path: Path, text: str) -> None:
    """Write a file that the user named.

    Raises:
        Unanswered: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Unanswered(f"{path}: cannot write: {error.strerror}") from error
