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

def add_on_two_streams(wait):
    x = torch.zeros(2, device="musa")
    torch.musa.synchronize()
    side = torch.musa.Stream()
    with torch.musa.stream(side):
        x.add_(1)
    if wait:
        torch.musa.current_stream().wait_stream(side)
    y = x * 2
    torch.musa.synchronize()
    assert y.tolist() == [2, 2]

@pytest.mark.simulated_machine(schedule="explore", devices=3, most=20)
def test_every_order(simulated_machine, tmp_path):
    assert tmp_path.exists() and torch.musa.device_count() == 3
    add_on_two_streams(wait=True)

@pytest.mark.simulated_machine(schedule="explore")
def test_wrong_in_one_order(simulated_machine):
    add_on_two_streams(wait=False)

@pytest.mark.simulated_machine(schedule="explore")
def test_right_in_one_order(simulated_machine):
    with pytest.raises(AssertionError):
        add_on_two_streams(wait=False)

@pytest.mark.simulated_machine(schedule="explore", most=1)
def test_too_many_orders(simulated_machine):
    try:
        add_on_two_streams(wait=False)
    except AssertionError:
        pass

@pytest.mark.simulated_machine(schedule="explore")
def test_without_the_fixture():
    pass

@pytest.mark.simulated_machine(schedule="explore", detect_races=True)
def test_explored_for_races(simulated_machine):
    pass

def test_not_explored(simulated_machine):
    assert simulated_machine.settings.schedule == "eager"

@pytest.mark.simulated_machine(detect_races=True)
def test_freed_too_early(simulated_machine):
    side = torch.musa.Stream()
    x = torch.ones(2, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with torch.musa.stream(side):
        x * 2

@pytest.mark.simulated_machine(schedule="lazy")
def test_failed_unseen(simulated_machine):
    torch.ones(2, device="musa").take(torch.tensor([7], device="musa"))

@pytest.mark.simulated_machine(schedule="lazy")
def test_failed_and_expected(simulated_machine):
    torch.ones(2, device="musa").take(torch.tensor([7], device="musa"))
    with pytest.raises(RuntimeError, match="out of range"):
        torch.musa.synchronize()

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
    assert "4 failed, 12 passed, 5 errors" in done.stdout, done.stdout + done.stderr
    assert "devices=0 is not a number of devices" in done.stdout
    assert "keyword arguments only" in done.stdout
    # Of a failing order, the launches in the order in which they ran, with the lines that issued them.
    listed = done.stdout.partition("order 2 of the work on the devices made it fail:")[2]
    assert 0 < listed.index("aten::mul") < listed.index("aten::add_ (launch 1) on stream 1 of device 0, at ")
    assert "DID NOT RAISE" in done.stdout and "order 1 of the work" in done.stdout
    assert "more than 1 runs are needed" in done.stdout
    assert "has the fixture simulated_machine" in done.stdout
    assert "leave out one of the two" in done.stdout
    # What no call has told when a test ends.
    assert "MissingRecordStreamError: memory is freed while another stream may still use it" in done.stdout
    assert "device 0 failed in aten::take" in done.stdout
