"""Runs the conformance suite in a forked child, as `python -m conformance` would, and hands back what came of it.

For: tests of the suite itself, which need many runs and cannot pay for a new interpreter each time.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.children import ChildProcesses


@dataclass(frozen=True)
class SuiteRun:
    """One run: pytest's exit code, everything printed, and the results document (empty where none was written)."""

    exit_code: int
    output: str
    results: dict[str, Any]

    def outcomes(self) -> dict[str, str]:
        """Outcome by clause id."""
        return {clause["id"]: clause["outcome"] for clause in self.results["clauses"]}


def run_suite(
    children: ChildProcesses, *arguments: str, environment: Mapping[str, str | None] | None = None, timeout: float = 250
) -> SuiteRun:
    """Run the suite with these arguments in a child process with these changes to its environment."""
    answer = children.run(
        "suite_runner:run_here",
        backend={},
        environment=environment or {},
        fresh_interpreter=False,
        timeout=timeout,
        arguments={"command_line": list(arguments)},
    )
    return SuiteRun(**answer)


def run_here(_make_accelerator: object, command_line: list[str]) -> dict[str, Any]:
    """Run the suite in this process, which must end soon after: a simulated machine stays installed.

    The seed is 0 unless the command line gives another, so that what a test needs found is found every time or never.
    """
    from conformance.__main__ import main

    tempfile.tempdir = None  # the environment of this process says where, not that of the process that it was forked from
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
        results = Path(folder) / "results.json"
        with contextlib.redirect_stderr(printed):
            code = main([f"--results={results}", "-p", "no:xdist", "--hypothesis-seed=0", *command_line])
        document = json.loads(results.read_text()) if results.exists() else {}
    return {"exit_code": code, "output": printed.getvalue(), "results": document}
