"""A runtime that aborts, crashes or hangs fails the clause that was being checked, with its last input, and the run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.faults import CATALOGUE

_CHECKS = {
    "crash-on-strided-copy": ("DEV-7", "test_copies_keep_every_bit", "ended with SIGSEGV"),
    "crash-abort-out-of-range": ("DEV-2", "test_what_names_no_device_is_refused_by_name", "ended with SIGABRT"),
    "crash-hang-in-set-device": ("DEV-3", "test_the_device_that_was_set_is_current", "hung"),
}


def test_every_fault_that_ends_its_process_is_tried_here() -> None:
    assert {fault.id for fault in CATALOGUE.values() if fault.ends_process} == set(_CHECKS)


@pytest.mark.parametrize(
    "fault_id",
    [pytest.param(one, marks=() if one == "crash-abort-out-of-range" else pytest.mark.thorough) for one in _CHECKS],
)
def test_the_run_survives_and_names_the_last_input(fault_id: str, tmp_path: Path) -> None:
    clause_id, check, ending = _CHECKS[fault_id]
    assert clause_id in CATALOGUE[fault_id].clauses
    # What hangs is waited for; what crashes is not, and may be slow on a busy machine.
    limit = 30 if ending == "hung" else 120
    shrinking = () if fault_id == "crash-on-strided-copy" else ("--no-shrink",)
    options = (f"--fault={fault_id}", "--hypothesis-seed=0", f"--timeout={limit}", *shrinking)
    run, results = _run(tmp_path, *options, "-k", f"{check} or REG-1 or SEL-3")
    clauses = {clause["id"]: clause for clause in results["clauses"]}
    assert run.returncode == 1, run.stdout
    assert clauses["REG-1"]["outcome"] == "pass", run.stdout
    assert clauses["SEL-3"]["outcome"] == "pass", run.stdout
    assert clauses[clause_id]["outcome"] == "fail"
    failed = next(found for found in clauses[clause_id]["checks"] if found["outcome"] == "fail")
    assert ending in failed["text"]
    assert "did not end within" not in failed["text"], "a late example counts only where the check itself hung"
    assert failed["smallest_failing_example"]
    assert f"--fault={fault_id}" in failed["replay"]
    assert results["complete"]
    assert list((tmp_path / "temporary").glob("accelerator-conformance-*")) == []


def _run(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    results = folder / "results.json"
    command = [sys.executable, "-m", "conformance", "--backend=fake-musa", f"--results={results}", *arguments]
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)
    return run, json.loads(results.read_text(encoding="utf-8"))
