"""A pytest fixture that gives a test a simulated machine; load it with `-p fakes.pytest_plugin`.

For: tests of code that assumes an accelerator. Not for: the conformance suite, which has its own options.

    @pytest.mark.simulated_machine(persona="musa", devices=4, memory="1 GiB")
    def test_something(simulated_machine): ...

The marker takes the arguments of `fakes.install` and is optional. Each test gets a machine as after a reboot; PyTorch is as
before when the test is over, unless a machine was installed before it. A process can have one persona only: a test that asks for
another fails.

What goes wrong on a device and no call has told when the test ends (memory that was freed too early, a kernel that failed and that
nobody waited for) is raised then.

With `schedule="explore"` the test's function runs once for each order of its work that could differ (`fakes.explore`), and fails with
the first one that makes it fail; `most` is how many runs it may need. Its other fixtures are set up once.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import fakes
from fakes.errors import MachineConfigurationError, MachineInstalledError


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "simulated_machine(persona='musa', devices=2, memory='8 GiB', schedule='eager', seed=0): the machine of the fixture of this "
        "name; arguments as for fakes.install, and schedule='explore', most=10000 for every order",
    )


def _marked(item: Any) -> dict[str, Any]:
    """What the marker of a test says."""
    marker = item.get_closest_marker("simulated_machine")
    if marker is None:
        return {}
    if marker.args:
        raise pytest.UsageError(f"simulated_machine takes keyword arguments only, not {marker.args}")
    return dict(marker.kwargs)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test in every order, where its marker says so."""
    marked = _marked(pyfuncitem)
    if marked.get("schedule") != "explore":
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    if "simulated_machine" not in pyfuncitem.funcargs or inspect.iscoroutinefunction(pyfuncitem.obj):
        raise pytest.UsageError("schedule='explore' is for a test that is no coroutine and has the fixture simulated_machine")

    def program() -> BaseException | None:
        try:
            pyfuncitem.obj(**arguments)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - of whatever kind, the order is told with it
            return error
        return None

    for number, run in enumerate(fakes.explore(program, **{name: marked[name] for name in ("most",) if name in marked}), 1):
        if run.result is not None:
            order = "".join(f"\n  {launch}" for launch in run.order) or " no launch"
            pyfuncitem.add_report_section("call", "order", f"order {number} of the work on the devices made it fail:{order}")
            raise run.result
    return True


@pytest.fixture
def simulated_machine(request: pytest.FixtureRequest) -> Iterator[fakes.Machine]:
    """A simulated machine as after a reboot, installed for this test."""
    settings: dict[str, Any] = {"persona": "musa"} | _marked(request.node)
    if settings.get("schedule") == "explore":
        if settings.get("detect_races"):
            raise MachineConfigurationError("schedule='explore' shows what a race does, and detects none; leave out one of the two")
        settings["schedule"] = "eager"  # until the test's function runs
        settings.pop("most", None)
    persona = settings.pop("persona")
    outer = fakes.installed_machine()
    if outer is not None and outer.persona.name != persona:
        raise MachineInstalledError(
            f"this process has the persona {outer.persona.name!r}; run tests for {persona!r} in another one"
        )
    if outer is None:
        machine = fakes.install(persona, **settings)
    else:
        machine, before = outer, outer.settings
        machine.reset(**settings)
    failed = request.session.testsfailed
    yield machine
    untold = _untold(machine, request, failed)
    if outer is None:
        machine.uninstall()
    elif fakes.installed_machine() is machine:
        machine.reset(
            devices=len(before.memories), memory=before.memories, schedule=before.schedule, seed=before.seed,
            detect_races=before.detect_races,
        )  # fmt: skip
    if untold is not None:
        raise untold


def _untold(machine: fakes.Machine, request: pytest.FixtureRequest, failed: int) -> Exception | None:
    """What the end of a test that passed would lose; `failed` is the number of failed tests before it."""
    if fakes.installed_machine() is not machine or request.session.testsfailed > failed:
        return None
    return machine.scheduler.untold()
