"""Fixtures that the project's own tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from suite_runner import SuiteRun, run_suite

from conformance.children import ChildProcesses


@pytest.fixture(scope="session")
def children() -> Iterator[ChildProcesses]:
    """Forks child processes from a zygote that has all that a run of the suite imports."""
    processes = ChildProcesses(
        preload=("conformance.plugin", "reports.pytest_plugin", "fakes.faults", "hypothesis.strategies", "xdist")
    )
    yield processes
    processes.close()


@pytest.fixture(scope="session")
def suite(children: ChildProcesses) -> Callable[..., SuiteRun]:
    """Runs the conformance suite in a child process: `suite("--backend=cpu", "-k", "DEV")`."""

    def run(*arguments: str, **options: Any) -> SuiteRun:
        return run_suite(children, *arguments, **options)

    return run
