"""Installing, resetting and uninstalling a simulated machine."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
from typing import Any

import pytest
import torch

import fakes
from fakes.errors import (
    MachineConfigurationError,
    MachineInstalledError,
    MachineNotInstalledError,
    UnknownPersonaError,
    UnsupportedScheduleError,
    UnsupportedTorchError,
)
from fakes.memory_size import parse_memory_size
from fakes.settings import MAX_DEVICES

PLACES = (
    torch,
    torch._C,
    torch.Tensor,
    torch.UntypedStorage,
    torch.autograd,
    torch.autograd.graph,
    torch.accelerator,
    torch.serialization,
)


def snapshot() -> dict[tuple[str, str], int]:
    """The identity of every attribute of the places that are patched, and of the imported modules."""
    seen = {(repr(place), name): id(value) for place in PLACES for name, value in vars(place).items()}
    return seen | {("sys.modules", name): id(module) for name, module in sys.modules.items() if name in ("pymtml", "pynvml")}


def test_uninstalling_leaves_torch_as_it_was(simulated_machine: fakes.Machine) -> None:
    simulated_machine.uninstall()
    before = snapshot()
    machine = fakes.install("musa")
    assert snapshot() != before
    (torch.ones(2, device="musa", requires_grad=True) * 2).sum().backward()
    machine.uninstall()
    after = snapshot()
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()
    assert not torch.zeros(2).is_pinned()
    with pytest.raises(RuntimeError):
        torch.Generator(device="musa")


def test_the_device_type_stays_without_devices(simulated_machine: fakes.Machine) -> None:
    tensor = torch.ones(2, device="musa")
    simulated_machine.uninstall()
    simulated_machine.uninstall()
    assert torch.musa.device_count() == 0
    assert not torch.musa.is_available()
    assert not torch.musa.is_initialized()
    with pytest.raises(MachineNotInstalledError, match=r"fakes\.install"):
        torch.empty(2, device="musa")
    with pytest.raises(MachineNotInstalledError, match=r"fakes\.install"):
        tensor + 1
    with pytest.raises(MachineNotInstalledError, match="uninstalled"):
        simulated_machine.reset()


def test_installing_twice_is_refused_and_again_after_uninstalling_works(simulated_machine: fakes.Machine) -> None:
    with pytest.raises(MachineInstalledError, match=r"reset\(\)"):
        fakes.install("musa")
    assert fakes.installed_machine() is simulated_machine
    simulated_machine.uninstall()
    again = fakes.install("musa", devices=3)
    assert torch.musa.device_count() == 3
    assert torch.arange(3, device="musa:2").tolist() == [0, 1, 2]
    again.uninstall()


def test_a_second_persona_in_one_process_is_refused_in_one_line(
    simulated_machine: fakes.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fakes import installation

    simulated_machine.uninstall()
    monkeypatch.setattr(installation, "PERSONAS", {**installation.PERSONAS, "other": installation.PERSONAS["musa"]})
    with pytest.raises(MachineInstalledError, match="already has the persona 'musa'") as caught:
        fakes.install("other")
    assert "\n" not in str(caught.value)
    assert fakes.installed_machine() is None


BAD_SETTINGS: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
    ({"persona": "tpu"}, UnknownPersonaError, "musa"),
    ({"persona": ""}, UnknownPersonaError, "musa"),
    ({"persona": None}, UnknownPersonaError, "musa"),
    ({"devices": 0}, MachineConfigurationError, "devices=0"),
    ({"devices": -1}, MachineConfigurationError, "devices=-1"),
    ({"devices": MAX_DEVICES + 1}, MachineConfigurationError, "from 1 to 64"),
    ({"devices": 1.0}, MachineConfigurationError, "devices=1.0"),
    ({"devices": True}, MachineConfigurationError, "devices=True"),
    ({"devices": "2"}, MachineConfigurationError, "devices='2'"),
    ({"devices": None}, MachineConfigurationError, "devices=None"),
    ({"memory": "lots"}, MachineConfigurationError, "'lots'"),
    ({"memory": ""}, MachineConfigurationError, "memory=''"),
    ({"memory": "-1 GiB"}, MachineConfigurationError, "-1 GiB"),
    ({"memory": "0 GiB"}, MachineConfigurationError, "0 GiB"),
    ({"memory": "nan GiB"}, MachineConfigurationError, "nan"),
    ({"memory": "1e3 GiB"}, MachineConfigurationError, "1e3"),
    ({"memory": "8 GiB of RAM"}, MachineConfigurationError, "8 GiB of RAM"),
    ({"memory": "9" * 29 + " TiB"}, MachineConfigurationError, "999"),
    ({"memory": 0}, MachineConfigurationError, "memory=0"),
    ({"memory": -5}, MachineConfigurationError, "memory=-5"),
    ({"memory": float("nan")}, MachineConfigurationError, "nan"),
    ({"memory": 1e9}, MachineConfigurationError, "1000000000.0"),
    ({"memory": True}, MachineConfigurationError, "True"),
    ({"memory": None}, MachineConfigurationError, "None"),
    ({"memory": ["1 GiB"]}, MachineConfigurationError, "1 sizes for 2 devices"),
    ({"memory": ["1 GiB", "none"]}, MachineConfigurationError, "none"),
    ({"schedule": "sometimes"}, UnsupportedScheduleError, "eager"),
    ({"schedule": []}, UnsupportedScheduleError, "eager"),
    ({"schedule": "explore"}, UnsupportedScheduleError, "explore.program"),
    ({"seed": -1}, MachineConfigurationError, "seed=-1"),
    ({"seed": "0"}, MachineConfigurationError, "seed='0'"),
    ({"detect_races": "yes"}, MachineConfigurationError, "detect_races='yes'"),
)


@pytest.mark.parametrize(
    ("settings", "error", "text"), BAD_SETTINGS, ids=lambda value: repr(value) if isinstance(value, dict) else ""
)
def test_bad_settings_are_refused_and_change_nothing(
    simulated_machine: fakes.Machine, settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    if "persona" not in settings:
        given = {name: value for name, value in settings.items() if value is not None}
        if given:
            before = simulated_machine.cards
            with pytest.raises(error, match=text.replace("(", r"\(")):
                simulated_machine.reset(**given)
            assert simulated_machine.cards == before
    simulated_machine.uninstall()
    before_install = snapshot()
    with pytest.raises(error, match=text):
        fakes.install(**{"persona": "musa", **settings})
    assert fakes.installed_machine() is None
    assert snapshot() == before_install


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8 GiB", 8 << 30),
        ("512MiB", 512 << 20),
        ("1.5 GB", 1_500_000_000),
        (" 10 kib ", 10 << 10),
        ("4096", 4096),
        ("7 B", 7),
        (123, 123),
    ],
)
def test_memory_sizes(text: int | str, size: int) -> None:
    assert parse_memory_size(text) == size


def test_a_torch_without_python_backends_is_refused(simulated_machine: fakes.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated_machine.uninstall()
    monkeypatch.setitem(sys.modules, "torch.utils.backend_registration", types.ModuleType("torch.utils.backend_registration"))
    with pytest.raises(UnsupportedTorchError, match="this is") as caught:
        fakes.install("musa")
    assert "\n" not in str(caught.value)
    assert fakes.installed_machine() is None


def test_importing_needs_nothing_that_an_older_torch_lacks() -> None:
    """A run of the suite on the CPU or on hardware imports `fakes` with any PyTorch."""
    program = (
        "import torch; del torch._C._acc\n"
        "import sys; sys.modules['torch.utils.backend_registration'] = None\n"
        "import fakes, fakes.errors\n"
        "try: fakes.install('musa')\n"
        "except fakes.errors.UnsupportedTorchError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "need PyTorch 2.10 or later" in done.stdout


@pytest.mark.simulated_machine(devices=3, memory=["1 GiB", "2 GiB", "3 GiB"])
def test_reset_is_a_reboot_that_keeps_what_is_not_given(simulated_machine: fakes.Machine) -> None:
    torch.musa.set_device(2)
    held = torch.ones(1000, device="musa:2")
    torch.musa.manual_seed(5)
    simulated_machine.reset()
    assert not torch.musa.is_initialized()
    assert simulated_machine.open_contexts == ()
    assert torch.musa.current_device() == 0
    assert torch.musa.memory_allocated(2) == 0
    assert torch.musa.initial_seed() != 5
    assert torch.musa.get_device_properties(1).total_memory == 2 << 30
    assert held.sum().item() == 1000
    del held
    assert torch.musa.memory_allocated(2) == 0
    simulated_machine.reset(devices=1)
    assert torch.musa.device_count() == 1


def test_reset_keeps_the_search_for_races(simulated_machine: fakes.Machine) -> None:
    simulated_machine.reset(detect_races=True)
    simulated_machine.reset(schedule="lazy")
    assert simulated_machine.settings.detect_races
    simulated_machine.reset(detect_races=False)
    assert not simulated_machine.settings.detect_races


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded"])
def test_streams_that_a_framework_keeps_outlive_a_reset(simulated_machine: fakes.Machine, schedule: str) -> None:
    simulated_machine.reset(schedule=schedule, detect_races=True)
    default, side = torch.musa.current_stream(), torch.musa.Stream()
    with torch.musa.stream(side):
        simulated_machine.reset()
    assert torch.musa.current_stream() == default == torch.musa.default_stream()
    x = torch.zeros(1, device="musa")
    side.wait_stream(default)
    with torch.musa.stream(side):
        x += 1
    default.wait_stream(side)
    with torch.musa.stream(default):
        x += 1
    assert x.item() == 2


def test_a_stream_context_may_end_after_uninstalling(simulated_machine: fakes.Machine) -> None:
    with torch.musa.stream(torch.musa.Stream()):
        simulated_machine.uninstall()
    assert not torch.musa.is_available()


def test_importing_fakes_changes_nothing_in_torch() -> None:
    program = "import torch; import fakes; assert not hasattr(torch, 'musa'); print(torch._C._get_privateuse1_backend_name())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "privateuseone"


def test_public_functions_say_what_they_do() -> None:
    for value in (fakes.install, fakes.Machine, fakes.Machine.reset, fakes.Machine.uninstall, fakes.installed_machine):
        assert inspect.getdoc(value)
