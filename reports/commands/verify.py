"""The command `accelerator-conformance verify`.

For: answering whether a package holds, to people and machines. Not for: finding out (`reports.verification`, `reports.replay`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from reports.commands.console import REPORT_PATH, console
from reports.errors import ReplayError
from reports.untrusted_text import plain, printable
from reports.verification.examining import verify_path
from reports.verification.findings import State, StepResult, Verdict, Verification

_MARKS = {State.HOLDS: ("✓", "green"), State.FAILS: ("✗", "bold red"), State.NOT_CHECKED: ("–", "yellow")}
_PLAIN_MARKS = {State.HOLDS: "ok ", State.FAILS: "NO ", State.NOT_CHECKED: "-  "}  # where a terminal has no signs
_ANSWERS = {
    Verdict.HOLDS: ("holds: whole, and consistent with itself and with the contract", "bold green"),
    Verdict.FAILS: ("DOES NOT HOLD", "bold red"),
    Verdict.UNREADABLE: ("CANNOT BE READ", "bold red"),
}
_SHOWN = 8  # findings of one step


@click.command()
@click.argument("path", type=REPORT_PATH)
@click.option("--key", type=REPORT_PATH, metavar="FILE", help="The ed25519 public key (PEM) that must have signed the package.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@click.option("--replay", is_flag=True, help="Run the suite here too, on the report's backend, and compare outcomes.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="With --replay: the seed; a random one without.")
@click.option(
    "--examples", type=click.IntRange(1, 10**6), help="With --replay: examples a property; as many as the report without."
)
@click.option(
    "--clause", "clauses", multiple=True, metavar="ID", help="With --replay: only this clause or area; may be given again."
)
@click.option(
    "--allow-code", multiple=True, metavar="MODULE:NAME", help="With --replay: code named by the report that may be imported."
)
def verify(
    path: Path,
    key: Path | None,
    as_json: bool,
    replay: bool,
    seed: int | None,
    examples: int | None,
    clauses: tuple[str, ...],
    allow_code: tuple[str, ...],
) -> None:
    """Is the package at PATH (a folder or a .tar.gz) whole, unaltered, and consistent with itself and the contract?

    Exit code 0: it holds. 1: it does not. 2: it cannot be read. Nothing in it is executed, and nothing is written.
    """
    given = {"--seed": seed is not None, "--examples": examples is not None, "--clause": clauses, "--allow-code": allow_code}
    for option, is_given in given.items():
        if is_given and not replay:
            raise click.UsageError(f"{option}: this is for --replay, which is not given")
    public_key = None
    if key is not None:
        from reports.signing import load_public_key

        public_key = load_public_key(key)
    verification = verify_path(path, public_key)
    if replay and verification.verdict is Verdict.HOLDS:
        from reports.replay import ReplayOptions
        from reports.verification.replay_step import replay_step

        options = ReplayOptions(seed, examples, clauses, frozenset(allow_code))
        try:
            verification = replay_step(verification, path, options)
        except ReplayError as error:
            click.echo(f"Error: cannot replay: {error}", err=True)
            sys.exit(Verdict.UNREADABLE.exit_code)
    if as_json:
        click.echo(json.dumps(verification.as_data(), indent=1))
    else:
        _show(verification, console())
    sys.exit(verification.verdict.exit_code)


def _show(verification: Verification, out: Console) -> None:
    if verification.headline:
        out.print(plain(verification.headline, "bold", longest=2000))
    for step in verification.steps:
        _show_step(step, out)
    answer, style = _ANSWERS[verification.verdict]
    out.print(plain(f"{printable(verification.path)} {answer}", style))
    for sentence in verification.says:
        out.print(plain(sentence, longest=1000))


def _show_step(step: StepResult, out: Console) -> None:
    mark, style = _MARKS[step.state]
    if not out.encoding.startswith("utf"):
        mark = _PLAIN_MARKS[step.state]
    out.print(plain(f"{mark} {step.title}", style))
    for finding in step.findings[:_SHOWN]:
        out.print(plain(f"    {finding.where}: {finding.message} [{finding.reason}]", longest=1000))
    more = len(step.findings[_SHOWN:]) + step.more
    if more:
        out.print(plain(f"    … and {more} more"))
    for note in step.notes:
        out.print(plain(f"    {note}", "dim", longest=1000))
