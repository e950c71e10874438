"""The whole verification of a package.

For: `verify` and every command that shows whether a report holds. Not for: the steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reports.errors import SchemaError, UnreadableError
from reports.levels import judge
from reports.reading import report_in
from reports.safe_archive import DEFAULT_LIMITS, read_package
from reports.untrusted_text import printable
from reports.verification.contract import Contract, this_contract
from reports.verification.contract_steps import CONTRACT_STEPS
from reports.verification.fact_steps import FACT_STEPS
from reports.verification.findings import Examined, Finding, State, StepResult, Verdict, Verification, take
from reports.verification.package_steps import PACKAGE_STEPS
from reports.verification.suite_steps import SUITE_STEPS
from reports.verification.worth_steps import WORTH_STEPS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

STEPS = (*CONTRACT_STEPS, *SUITE_STEPS, *WORTH_STEPS, *FACT_STEPS, *PACKAGE_STEPS)
_READ, _SCHEMA = "The package can be read safely", "report.json keeps the published schema"

SIGNED = (
    "The signature shows that whoever holds the private key to this public key signed exactly these files. It does not show that the run"
    " happened, that the devices are the ones named, or that the outcomes are true."
)
UNSIGNED = (
    "Somebody who changes outcomes in report.json and makes every other file again consistently leaves no trace that this could find. What"
    " can show it: a signature by a key that you trust (--key), or running the suite on such a device yourself (--replay)."
)
SIMULATED = "The devices were simulated: this says something about the suite and the reference, nothing about hardware."


def verify_path(path: Path, key: Ed25519PublicKey | None = None) -> Verification:
    """The verification of the package at `path`, a folder or a `.tar.gz`."""
    try:
        files = read_package(path, DEFAULT_LIMITS)
    except UnreadableError as error:
        return _unreadable(printable(str(path)), error)
    return verify_files(files, str(path), key)


def verify_files(
    files: dict[str, bytes], path: str, key: Ed25519PublicKey | None = None, contract: Contract | None = None
) -> Verification:
    """The verification of a package's files; `path` says where they are from."""
    path = printable(path)
    try:
        report = report_in(files)
    except SchemaError as error:
        found = tuple(Finding("schema", f"{error.file}{place}", message) for place, message in error.violations)
        failed = StepResult("schema", _SCHEMA, State.FAILS, found, more=error.more)
        return Verification(path, Verdict.FAILS, "", (StepResult("read", _READ, State.HOLDS), failed))
    except UnreadableError as error:
        return _unreadable(path, error)
    examined = Examined(files, report, contract or this_contract(), key)
    steps = (
        StepResult("read", _READ, State.HOLDS),
        StepResult("schema", _SCHEMA, State.HOLDS),
        *(take(step, examined) for step in STEPS),
    )
    fails = any(step.state is State.FAILS for step in steps)
    headline = printable(judge(report).headline, longest=2000)
    return Verification(path, Verdict.FAILS if fails else Verdict.HOLDS, headline, steps, _says(examined, fails))


def _unreadable(path: str, error: UnreadableError) -> Verification:
    step = StepResult("read", _READ, State.FAILS, (Finding(error.reason, error.where, error.message),))
    return Verification(path, Verdict.UNREADABLE, "", (step,))


def _says(examined: Examined, fails: bool) -> tuple[str, ...]:
    """What the answer means, and what it does not."""
    if fails:
        return ()
    simulated = (SIMULATED,) if judge(examined.report).status == "simulated" else ()
    return (*simulated, UNSIGNED if examined.key is None else SIGNED)
