"""The reports' side of a conformance run: `--results`, `--certify` and what goes with it.

For: pytest options that end in files, checked before the run, and pytest's hooks around them. Loaded by name by `conformance/plugin.py`.
Not for: what is in the files (`results_file.py`, `certifying.py`).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.outcomes import FAILING
from conformance.recording import RunResults
from reports.errors import ReportError, ResultsFileError
from reports.results_file import ResultsFile

if TYPE_CHECKING:
    from reports.certifying import Certification, CertifyOptions

_OPTIONS: pytest.StashKey[CertifyOptions] = pytest.StashKey()
_RUN: pytest.StashKey[Certification] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    add = parser.getgroup("conformance").addoption
    add("--results", default="", metavar="FILE.json", help="write the outcome of every clause as JSON")
    add("--certify", default="", metavar="FOLDER", help="write a self-certification package there (or to FILE.tar.gz)")
    add(
        "--known-failures",
        default="",
        metavar="FILE.toml",
        help="failures that are known and waivers; shown, counted, never passes",
    )
    add("--vendor", default="", metavar="NAME", help="who stands behind the backend, for --certify")
    add("--product", default="", metavar="NAME", help="what was tested, for --certify")
    add("--sign-key", default="", metavar="FILE.pem", help="sign the package with this ed25519 key")


def pytest_configure(config: pytest.Config) -> None:
    """Find out before the run whether the files can be read and written; earlier ones stay as they are until the run has ended."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    get = config.getoption
    try:
        if get("results"):
            check_writable(Path(get("results")))
        if get("certify") or get("known_failures") or get("vendor") or get("product") or get("sign_key"):
            from reports.certifying import read_options

            config.stash[_OPTIONS] = read_options(
                get("certify"), get("known_failures"), get("vendor"), get("product"), get("sign_key")
            )
    except ReportError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Gather the facts; only where a package or known failures are asked for."""
    options = session.config.stash.get(_OPTIONS, None)
    if options is not None:
        from conformance.plugin import SESSION
        from reports.certifying import Certification

        plugins = session.config.pluginmanager
        files = (getattr(plugin, "__file__", None) for plugin in plugins.get_plugins())
        conftests = [Path(file) for file in files if file and Path(file).name == "conftest.py"]
        session.config.stash[_RUN] = run = Certification(options, session.config.stash[SESSION], conftests)
        plugins.register(_Follower(session.config, run), "reports-follower")
        terminal = plugins.get_plugin("terminalreporter")
        if run.error is not None and terminal is not None:
            terminal.write_line(f"No report can be written now, and maybe none at the end: {run.error}", red=True)
        if options.target is not None and run.held_back_by and terminal is not None:
            terminal.write_line(f"This run will certify nothing: {'; '.join(run.held_back_by)}.", yellow=True)


class _Follower:
    """Follows a run check by check."""

    def __init__(self, config: pytest.Config, run: Certification) -> None:
        self._config = config
        self._run = run

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Learn what will be reported, without workers."""
        if session.items:
            self._run.progress.expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:  # noqa: ARG002 - pytest-xdist's signature
        """Learn what will be reported, with workers; each collects the same."""
        self._run.progress.expect(ids)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a check, after the suite has kept its record."""
        record = getattr(report, "conformance", None)
        if record is None:
            return
        line = self._run.reported(record["check"], record["outcome"])
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if line is not None and terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(line)


def pytest_conformance_results(config: pytest.Config, results: RunResults) -> None:
    """Write the files; known failures are in force from here on."""
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.finish(results, "every check was reported" if results.is_complete else "the run was cut short")
    target = config.getoption("results")
    if target:
        write_whole(Path(target), ResultsFile.from_results(results).to_json())


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
    """The exit code: known failures alone are no failure of the run, entries that are wrong and a package that is missing are."""
    yield
    run = session.config.stash.get(_RUN, None)
    if run is None or run.report is None or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    if run.error is not None:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    elif run.problems:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif run.options.exceptions is not None and not any(clause.outcome in FAILING for clause in run.report.clauses):
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the known failures, the verdict, and where the package is."""
    run = config.stash.get(_RUN, None)
    if run is None or run.report is None:
        return
    write = terminalreporter.write_line
    if run.report.exceptions is not None:
        write(f"{len(run.report.exceptions.entries)} known failures and waivers, none of which counts as a pass:")
        outcomes = {clause.id: clause.outcome for clause in run.report.clauses}
        for entry in run.report.exceptions.entries:
            shown = outcomes.get(entry.clause, "no such clause")
            write(f"  {entry.clause} ({entry.kind}, now {shown}): {entry.reason} <{entry.url}> until {entry.expires}")
        for problem in run.problems:
            write(f"  wrong: {problem}", red=True)
    if run.options.target is not None:
        write(run.report.verdict.headline, bold=True)
        if run.written is not None:
            write(f"package: {run.written}")
    if run.error is not None:
        write(f"no package was written: {run.error}", red=True)


def check_writable(path: Path) -> None:
    """Return where a file can be written at `path`.

    Raises:
        ResultsFileError: it cannot; the message says why.
    """
    if path.is_dir():
        raise ResultsFileError(f"--results={path}: this is a folder; name a file")
    if path.exists() and not os.access(path, os.W_OK):
        raise ResultsFileError(f"--results={path}: the file there cannot be overwritten")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name):
            pass
    except OSError as error:
        raise ResultsFileError(f"--results={path}: cannot write in {path.parent}: {error.strerror}") from error


def write_whole(path: Path, text: str) -> None:
    """Replace the file at `path` by `text`, or leave it as it was.

    Raises:
        ResultsFileError: it cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise ResultsFileError(f"--results={path}: cannot write: {error.strerror}") from error
