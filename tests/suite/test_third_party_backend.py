"""A third party's package brings a backend, with no line changed here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed in it, for PYTHONPATH; built from a copy, offline."""
    folder = tmp_path_factory.mktemp("third_party")
    source, target = folder / "source", folder / "installed"
    shutil.copytree(_REPOSITORY / "examples" / "third_party_backend", source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    _run([*pip, f"--target={target}", str(source)])
    return target


def _run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=_REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_found_by_its_entry_point_and_passes(installed: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "pytest", "conformance", "--backend=example", "--examples=3", f"--results={results}"]
    _run([*command, "-q", "-n0", "-p", "no:cacheprovider"], PYTHONPATH=str(installed), PYTHONDONTWRITEBYTECODE="1")
    document = json.loads(results.read_text())
    assert document["run"]["backend"] == "example"
    outcomes = {clause["id"]: clause["outcome"] for clause in document["clauses"]}
    assert (outcomes["REG-4"], outcomes["DEV-1"], outcomes["DEV-7"]) == ("pass", "pass", "pass")
    assert not {"fail", "flaky", "harness-error"} & set(outcomes.values()), outcomes


def test_frameworks_can_select_it(installed: Path) -> None:
    program = "from harness.accelerator import get_accelerator; a = get_accelerator(); print(a.name, a.device(0))"
    path = f"{installed}{os.pathsep}{_REPOSITORY}"
    assert _run([sys.executable, "-c", program], PYTHONPATH=path, SLIME_ACCELERATOR="example") == "example cpu:0\n"


def test_without_the_package_the_name_is_unknown() -> None:
    command = [sys.executable, "-m", "conformance", "--backend=example"]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--backend=example: no backend has this name" in done.stdout + done.stderr
