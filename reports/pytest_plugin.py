"""The reports' side of a conformance run: `--results`.

For: pytest options that end in a file, checked before the run. Loaded by name by `conformance/plugin.py`. Not for: what is in the file
(`results_file.py`).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from conformance.recording import RunResults
from reports.errors import ResultsFileError
from reports.results_file import ResultsFile


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("conformance")
    group.addoption("--results", default="", metavar="FILE.json", help="write the outcome of every clause as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Find out before the run whether the file can be written; an earlier file is left as it is until the run has ended."""
    target = config.getoption("results")
    if target and not hasattr(config, "workerinput"):
        try:
            check_writable(Path(target))
        except ResultsFileError as error:
            raise pytest.UsageError(str(error)) from error


def pytest_conformance_results(config: pytest.Config, results: RunResults) -> None:
    """Write the file."""
    target = config.getoption("results")
    if target:
        write_whole(Path(target), ResultsFile.from_results(results).to_json())


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
