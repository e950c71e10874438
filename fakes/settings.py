"""What a simulated machine is made of.

For: checking callers' values before anything is installed or changed. Not for: the machine (`machine.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from fakes.errors import MachineConfigurationError, UnsupportedScheduleError
from fakes.launch import EagerScheduler, Scheduler
from fakes.memory_size import parse_memory_size
from fakes.scheduling.exploration import Prepared
from fakes.scheduling.policies import Lazy, Policy, Recorded, Seeded
from fakes.scheduling.scheduler import DeferringScheduler

MAX_DEVICES = 64


def _eager(settings: Settings, lock: Any) -> Scheduler:
    if not settings.detect_races:
        return EagerScheduler()
    return DeferringScheduler(Recorded(), lock=lock, detect_races=True, fails_at_once=True)


def _lazy(settings: Settings, lock: Any) -> Scheduler:
    return DeferringScheduler(Lazy(), lock=lock, detect_races=settings.detect_races)


def _seeded(settings: Settings, lock: Any) -> Scheduler:
    return DeferringScheduler(Seeded(settings.seed), lock=lock, detect_races=settings.detect_races)


def _directed(settings: Settings, lock: Any) -> Scheduler:
    # Not all conflicts can be reversed in one order: seed 0 takes them as they come, the others leave some out.
    coin = Random(settings.seed)
    reverses = (lambda: True) if settings.seed == 0 else (lambda: coin.random() < 0.5)
    return DeferringScheduler(Lazy(), lock=lock, detect_races=settings.detect_races, reverses=reverses)


SCHEDULES: dict[str, Callable[[Settings, Any], Scheduler]] = {
    "eager": _eager,
    "lazy": _lazy,
    "seeded": _seeded,
    "directed": _directed,
}
"""Every schedule by name, and what makes its scheduler out of the settings and the machine's lock."""


def new_scheduler(settings: Settings, lock: Any) -> Scheduler:
    """The scheduler that settings ask for."""
    if isinstance(settings.schedule, str):
        return SCHEDULES[settings.schedule](settings, lock)
    if isinstance(settings.schedule, Prepared):
        return settings.schedule.scheduler
    return DeferringScheduler(settings.schedule, lock=lock, detect_races=settings.detect_races)


@dataclass(frozen=True)
class Settings:
    """What a machine is made of; `validated` is the only way to make one from callers' values."""

    memories: tuple[int, ...]
    schedule: str | Policy
    seed: int
    detect_races: bool

    @classmethod
    def validated(
        cls, devices: object, memory: int | str | Sequence[int | str], schedule: object, seed: object, detect_races: object
    ) -> Settings:
        """Check every value.

        Raises:
            MachineConfigurationError: a value is out of range; the message says which are legal.
        """
        if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= MAX_DEVICES:
            raise MachineConfigurationError(f"devices={devices!r} is not a number of devices; give an int from 1 to {MAX_DEVICES}")
        if isinstance(memory, int | str | float) or not isinstance(memory, Sequence):
            memories = (parse_memory_size(memory),) * devices
        else:
            memories = tuple(parse_memory_size(one) for one in memory)
            if len(memories) != devices:
                raise MachineConfigurationError(
                    f"memory has {len(memories)} sizes for {devices} devices; give one size, or one a device"
                )
        if schedule == "explore":
            raise UnsupportedScheduleError(
                "schedule='explore' is every order, not one: give the program to fakes.explore(program), or mark a test with "
                "simulated_machine(schedule='explore') of fakes.pytest_plugin; a machine takes one of: "
                + ", ".join(sorted(SCHEDULES))
            )
        if not (schedule in SCHEDULES if isinstance(schedule, str) else callable(getattr(schedule, "hold", None))):
            raise UnsupportedScheduleError(
                f"schedule={schedule!r} is not available; legal schedules: {', '.join(sorted(SCHEDULES))}, and an object with the "
                "method hold() of fakes.scheduling.policies.Policy"
            )
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
            raise MachineConfigurationError(f"seed={seed!r} is not a seed; give an int from 0 to 2**64 - 1")
        if not isinstance(detect_races, bool):
            raise MachineConfigurationError(f"detect_races={detect_races!r} is not a choice; give True or False")
        return cls(memories, schedule, seed, detect_races)  # type: ignore[arg-type]
