"""One run under `--certify` or `--known-failures`, from its start to its package.

For: facts at the start, progress, a report of how far the run has come while it lasts, the package at its end. Not for: pytest's hooks
(`pytest_plugin.py`) or the document (`building.py`).

An earlier package stays until a complete run replaces it. While a run lasts, and after one that was cut short, its report lies beside it
in a folder of the same name with `.incomplete` behind it.
"""

from __future__ import annotations

import datetime
import os
import shutil
import time
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.errors import ConformanceError
from conformance.outcomes import FAILING, Outcome
from conformance.recording import RunResults
from conformance.session import SuiteSession
from reports import backend_facts
from reports.building import RunEnd, RunFacts, build_report
from reports.derived_facts import checks_of_suite
from reports.errors import PackageError
from reports.facts import host_facts, suite_facts
from reports.known_failures import read_known_failures
from reports.model import Declared, Exceptions, Report
from reports.package import check_target, package_files, write_package
from reports.progress import Progress
from reports.untrusted_text import printable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SECONDS_BETWEEN_REPORTS = 20.0
_SECONDS_FOR_FACTS = 120.0
_LONGEST_NAME = 200  # characters
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")  # controls, bytes that are no UTF-8, line ends
_KNOWN_AT_THE_START = ("simulated", "fault", "no-device", "dirty-tree", "unknown-tree", "effort", "options")


@dataclass(frozen=True)
class CertifyOptions:
    """The reports' options of one run, checked. `target` is None without --certify, `key` without --sign-key."""

    target: Path | None
    declared: Declared
    exceptions: Exceptions | None
    key: Ed25519PrivateKey | None


def read_options(certify: str, known_failures: str, vendor: str, product: str, sign_key: str) -> CertifyOptions:
    """The options, from what was written on the command line.

    Raises:
        PackageError: no package can be written there, or an option makes no sense without --certify.
        KnownFailuresError, SigningError: a file cannot be used.
    """
    if not certify:
        for option, value in (("--vendor", vendor), ("--product", product), ("--sign-key", sign_key)):
            if value:
                raise PackageError(f"{option}={value}: say where the package goes: --certify=FOLDER")
    for option, value in (("--vendor", vendor), ("--product", product)):
        if len(value) > _LONGEST_NAME or any(unicodedata.category(character) in _NOT_IN_NAMES for character in value):
            legal = f"a name is one line of at most {_LONGEST_NAME} characters, without control characters"
            raise PackageError(f"{option}={printable(value, longest=80)}: {legal}")
    target = Path(certify) if certify else None
    if target is not None:
        check_target(target)
        check_target(_incomplete(target))
    key = None
    if sign_key:
        from reports.signing import load_private_key

        key = load_private_key(Path(sign_key))
    exceptions = read_known_failures(Path(known_failures)) if known_failures else None
    return CertifyOptions(target, Declared(vendor=vendor, product=product), exceptions, key)


def _incomplete(target: Path) -> Path:
    return target.with_name(f"{target.name}.incomplete")


class Certification:
    """Made when the session starts, in the controlling process."""

    def __init__(self, options: CertifyOptions, suite: SuiteSession, conftests: Iterable[Path]) -> None:
        self.options = options
        self.report: Report | None = None
        self.written: Path | None = None
        self.error: PackageError | None = None
        self._suite = suite
        self._began = time.monotonic()
        self._facts = _gather_facts(options, suite, conftests)
        areas = {name: check.clauses[0].partition("-")[0] for name, check in checks_of_suite().items() if check.clauses}
        self.progress = Progress(areas, self._began)
        self._kept = self._began
        self.held_back_by = tuple(cap.text for cap in self._keep("the run has begun").verdict.caps if cap.id in _KNOWN_AT_THE_START)
        """What will hold the run's status back, as far as it is known before the first check."""

    def reported(self, check: str, outcome: str) -> str | None:
        """Take note of a check; a line to print where one is due."""
        self.progress.reported(check, failed=Outcome(outcome) in FAILING)
        now = time.monotonic()
        if now - self._kept >= _SECONDS_BETWEEN_REPORTS:
            self._kept = now
            self._keep("the run was going on, or ended without a word")
        return self.progress.line_if_due(now)

    def finish(self, results: RunResults, ending: str) -> None:
        """Apply the known failures to the results, and write the package."""
        self.report = report = build_report(results, self._facts, self._end(ending, complete=results.is_complete))
        for clause in report.clauses:
            results.clauses[clause.id].outcome = Outcome(clause.outcome)
        target = self.options.target
        if target is None:
            return
        place = target if results.is_complete else _incomplete(target)
        try:
            write_package(place, package_files(report, self.options.key if results.is_complete else None))
            self.written = place
        except PackageError as error:
            self.error = error
        if results.is_complete and self.error is None:
            shutil.rmtree(_incomplete(target), ignore_errors=True)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the known failures."""
        exceptions = None if self.report is None else self.report.exceptions
        return () if exceptions is None else exceptions.problems

    def _end(self, ending: str, *, complete: bool) -> RunEnd:
        return RunEnd(time.monotonic() - self._began, complete, ending, frozenset(self._suite.records))

    def _keep(self, ending: str) -> Report:
        """Write down how far the run has come. A disk that is full now may not be at the end."""
        report = build_report(self._suite.results_so_far(), self._facts, self._end(ending, complete=False))
        if self.options.target is None:
            return report
        try:
            write_package(_incomplete(self.options.target), package_files(report))
            self.error = None
        except PackageError as error:
            self.error = error
        return report


def _gather_facts(options: CertifyOptions, suite: SuiteSession, conftests: Iterable[Path]) -> RunFacts:
    accelerator = suite.backend.accelerator
    told: dict[str, Any]
    try:
        told = suite.backend.in_child(backend_facts.gather, timeout=_SECONDS_FOR_FACTS)
    except ConformanceError as error:  # the runtime crashes when it is asked; the checks will say so too
        told = {**backend_facts.adapter_facts(accelerator), "devices": [], "driver": "", "runtime": "", "capabilities": []}
        told["configuration"]["not told"] = str(error)[:2000]
    now = datetime.datetime.now(datetime.timezone.utc)
    return RunFacts(
        started=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        argv=suite.options.argv,
        declared=options.declared,
        suite=suite_facts(conftests),
        host=host_facts(getattr(accelerator, "visible_devices_grammar", None), os.environ),
        backend=told,
        exceptions=options.exceptions,
    )
