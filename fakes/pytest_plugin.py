"""A pytest fixture that gives a test a simulated machine; load it with `-p fakes.pytest_plugin`.

For: tests of code that assumes an accelerator. Not for: the conformance suite, which has its own options.

    @pytest.mark.simulated_machine(persona="musa", devices=4, memory="1 GiB")
    def test_something(simulated_machine): ...

The marker takes the arguments of `fakes.install` and is optional. Each test gets a machine as after a reboot; PyTorch is as
before when the test is over, unless a machine was installed before it. A process can have one persona only: a test that asks for
another fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import fakes
from fakes.errors import MachineInstalledError


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "simulated_machine(persona='musa', devices=2, memory='8 GiB', schedule='eager', seed=0): "
        "the machine of the fixture of this name; arguments as for fakes.install",
    )


@pytest.fixture
def simulated_machine(request: pytest.FixtureRequest) -> Iterator[fakes.Machine]:
    """A simulated machine as after a reboot, installed for this test."""
    marker = request.node.get_closest_marker("simulated_machine")
    if marker is not None and marker.args:
        raise pytest.UsageError(f"simulated_machine takes keyword arguments only, not {marker.args}")
    settings: dict[str, Any] = {"persona": "musa"} | (dict(marker.kwargs) if marker is not None else {})
    persona = settings.pop("persona")
    machine = fakes.installed_machine()
    if machine is None:
        machine = fakes.install(persona, **settings)
        yield machine
        machine.uninstall()
        return
    if machine.persona.name != persona:
        raise MachineInstalledError(
            f"this process has the persona {machine.persona.name!r}; run tests for {persona!r} in another one"
        )
    before = machine.settings
    machine.reset(**settings)
    yield machine
    if fakes.installed_machine() is machine:
        machine.reset(devices=len(before.memories), memory=before.memories, schedule=before.schedule, seed=before.seed)
