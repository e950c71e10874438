"""The plugin, as a framework's own tests load it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

TESTS = """
import pytest, torch, fakes

def test_default(simulated_machine):
    assert torch.musa.device_count() == 2
    torch.musa.set_device(1)
    test_default.tensor = torch.ones(5, device="musa")

def test_fresh(simulated_machine):
    assert not torch.musa.is_initialized()
    assert torch.musa.memory_allocated(1) == 0

@pytest.mark.simulated_machine(devices=5, memory="1 MiB")
def test_marked(simulated_machine):
    assert torch.musa.device_count() == 5
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 20, device="musa:4")

def test_without():
    assert fakes.installed_machine() is None

def test_own_machine_is_kept():
    machine = fakes.install("musa", devices=3)

def test_uses_it(simulated_machine):
    assert torch.musa.device_count() == 3
    simulated_machine.reset(devices=1)

def test_ends():
    assert torch.musa.device_count() == 3
    fakes.installed_machine().uninstall()

@pytest.mark.simulated_machine(devices=0)
def test_bad(simulated_machine):
    pass

@pytest.mark.simulated_machine("musa")
def test_positional(simulated_machine):
    pass
"""


def test_each_test_gets_a_machine_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_framework.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "fakes.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        "-q",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=REPOSITORY)
    assert "7 passed, 2 errors" in done.stdout, done.stdout + done.stderr
    assert "devices=0 is not a number of devices" in done.stdout
    assert "keyword arguments only" in done.stdout
