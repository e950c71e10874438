"""What a simulated machine is made of.

For: checking callers' values before anything is installed or changed. Not for: the machine (`machine.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fakes.errors import MachineConfigurationError, UnsupportedScheduleError
from fakes.launch import EagerScheduler, Scheduler
from fakes.memory_size import parse_memory_size

SCHEDULES: dict[str, Callable[[], Scheduler]] = {"eager": EagerScheduler}
"""Every schedule by name, and what makes its scheduler."""
MAX_DEVICES = 64


@dataclass(frozen=True)
class Settings:
    """What a machine is made of; `validated` is the only way to make one from callers' values."""

    memories: tuple[int, ...]
    schedule: str
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
        if not isinstance(schedule, str) or schedule not in SCHEDULES:
            raise UnsupportedScheduleError(
                f"schedule={schedule!r} is not available; legal schedules: {', '.join(sorted(SCHEDULES))}"
            )
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
            raise MachineConfigurationError(f"seed={seed!r} is not a seed; give an int from 0 to 2**64 - 1")
        if detect_races is not False:
            raise MachineConfigurationError(f"detect_races={detect_races!r} is not available with schedule 'eager'; give False")
        return cls(memories, schedule, seed, False)
