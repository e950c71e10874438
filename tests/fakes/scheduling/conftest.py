"""The machine of these tests: one schedule after the other where a test does not name its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fakes
from fakes.pytest_plugin import pytest_configure
from fakes.pytest_plugin import simulated_machine as plain_machine

__all__ = ["plain_machine", "pytest_configure"]

SCHEDULES = [("lazy", 0), ("seeded", 1)]


@pytest.fixture(params=SCHEDULES, ids=lambda case: f"{case[0]}-{case[1]}")
def every_schedule(request: pytest.FixtureRequest) -> tuple[str, int]:
    """A schedule and a seed."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def scheduled_machine(plain_machine: fakes.Machine, every_schedule: tuple[str, int]) -> Iterator[fakes.Machine]:
    """The machine that a test asks for, under every schedule."""
    schedule, seed = every_schedule
    plain_machine.reset(schedule=schedule, seed=seed)
    yield plain_machine
    if fakes.installed_machine() is plain_machine:
        plain_machine.reset(schedule="eager")
