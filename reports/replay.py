"""Running the suite again and comparing with a report.

For: `verify --replay`: the one thing that shows something about outcomes. A fresh process runs the local suite with the verifier's seed on
the backend that the report names. The command line is built from checked fields, never from the report's own; nothing that the package
brings is executed, and code that the report merely names (`--accelerator` and the like) is imported only where the verifier allows it by
name. Not for: finding out whether the package is unaltered (`verification/`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.clauses import CLAUSES
from reports.errors import ReplayError
from reports.model import Report
from reports.untrusted_text import printable
from reports.verification.contract import this_contract

_BACKEND = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_CODE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,200}:[A-Za-z_][A-Za-z0-9_.]{0,100}")
_MOST_DEVICES = 64
_STEERING = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "HYPOTHESIS_EXPERIMENTAL_BACKEND")
_VERDICTS = {"pass": "pass", "unsupported": "unsupported"} | dict.fromkeys(
    ("fail", "flaky", "harness-error", "known-failure", "waived"), "fail"
)

Runner = Callable[[list[str]], Any]
"""Runs the suite with these arguments and returns the document of `--results`."""


@dataclass(frozen=True)
class ReplayOptions:
    """What the verifier chose. `clauses` are ids or areas, none for all; `examples` None for as many as the report had."""

    seed: int | None = None
    examples: int | None = None
    clauses: tuple[str, ...] = ()
    allowed_code: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Difference:
    """A clause on which the report and this run disagree."""

    clause: str
    reported: str
    found: str
    replay: str


@dataclass(frozen=True)
class Replay:
    """How a run here compares. Counts are of clauses with a verdict in the report, and of those asked for where some were."""

    seed: int
    arguments: tuple[str, ...]
    agreed: int
    differences: tuple[Difference, ...]
    without_verdict: tuple[str, ...]
    """Clauses with a verdict in the report and none here, for want of a device."""

    def as_data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "seed": self.seed,
            "arguments": list(self.arguments),
            "agreed": self.agreed,
            "differences": [vars(difference) for difference in self.differences],
            "without_verdict": list(self.without_verdict),
        }


def replay(report: Report, options: ReplayOptions, run: Runner | None = None) -> Replay:
    """The comparison with a run here.

    Raises:
        ReplayError: this report cannot be replayed here, or the run said nothing about any of its clauses.
    """
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    arguments = suite_arguments(report, options, seed)
    results = (run or run_suite)(arguments)
    outcomes, lines = _outcomes(results)
    agreed, differences, without = 0, [], []
    asked = {name.upper() for name in options.clauses}
    for clause in report.clauses:
        if asked and not asked & {clause.id, clause.id.partition("-")[0]}:
            continue
        reported = _VERDICTS.get(clause.outcome)
        found = _VERDICTS.get(outcomes.get(clause.id, ""))
        if reported is None:
            continue
        if found is None:
            without.append(clause.id)
        elif found == reported:
            agreed += 1
        else:
            differences.append(Difference(clause.id, clause.outcome, outcomes[clause.id], lines.get(clause.id, "")))
    if not agreed and not differences:
        raise ReplayError("the run here gave no verdict on any clause of the report: it takes such a device to replay it")
    return Replay(seed, tuple(arguments), agreed, tuple(differences), tuple(without))


def suite_arguments(report: Report, options: ReplayOptions, seed: int) -> list[str]:
    """The command line of `python -m conformance`, from checked fields.

    Raises:
        ReplayError: a field is not what it must be, or names code that the verifier has not allowed.
    """
    if report.suite.contract_revision != this_contract().revision:
        raise ReplayError(
            f"the report is of contract {printable(report.suite.contract_revision)}; this suite is of {this_contract().revision}"
        )
    backend = report.backend
    examples = options.examples or report.run.examples
    arguments = [f"--hypothesis-seed={seed}", f"--examples={examples}", f"--tier={report.run.tier}"]
    for option, code in (
        ("--accelerator", backend.accelerator),
        ("--normalizer", backend.normalizer),
        ("--aligner", backend.aligner),
    ):
        if code:
            arguments.append(f"{option}={_allowed(option, code, options.allowed_code)}")
    if not backend.accelerator:
        if not _BACKEND.fullmatch(backend.name):
            raise ReplayError(f"'{printable(backend.name)}' cannot be the name of a backend")
        arguments.append(f"--backend={backend.name}")
    if backend.simulated and 1 <= len(report.host.devices) <= _MOST_DEVICES:
        arguments.append(f"--devices={len(report.host.devices)}")
    if report.run.fault:
        arguments.append(f"--fault={_known_fault(report.run.fault)}")
    if options.clauses:
        arguments += ["-k", " or ".join(_known_clauses(options.clauses))]
    return arguments


def _allowed(option: str, code: str, allowed: frozenset[str]) -> str:
    if not _CODE.fullmatch(code):
        raise ReplayError(f"{option}: '{printable(code)}' is no module:name")
    if code not in allowed:
        raise ReplayError(f"the report was made with {option}={code}, which would be imported; allow it with --allow-code={code}")
    return code


def _known_fault(fault: str) -> str:
    from fakes.faults import CATALOGUE

    if fault not in CATALOGUE:
        raise ReplayError(f"the fault '{printable(fault)}' is not in this catalogue")
    return fault


def _known_clauses(names: Iterable[str]) -> Iterator[str]:
    areas = {clause.area for clause in CLAUSES.values()}
    for name in names:
        if name.upper() not in CLAUSES and name.upper() not in areas:
            raise ReplayError(
                f"'{printable(name)}' is neither a clause nor an area of the contract; see accelerator-conformance clauses"
            )
        yield name.upper()


def run_suite(arguments: list[str]) -> Any:
    """Run the suite in a fresh process in an empty folder, its output on standard error; the document of its `--results`.

    Raises:
        ReplayError: it ended without results.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _STEERING}
    root = str(Path(__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="accelerator-conformance-replay-") as folder:
        target = Path(folder) / "results.json"
        command = [sys.executable, "-m", "conformance", *arguments, "-q", f"--results={target}"]
        ended = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        try:
            return json.loads(target.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ReplayError(
                f"the suite ended with exit code {ended.returncode} and without results; its output says why"
            ) from error


def _outcomes(results: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Outcomes and lines that run a failing check again, by clause. A clause none of whose checks was chosen has none."""
    outcomes, lines = {}, {}
    for clause in results["clauses"]:
        outcomes[clause["id"]] = clause["outcome"]
        lines[clause["id"]] = next((check["replay"] for check in clause["checks"] if check["replay"]), "")
    return outcomes, lines
