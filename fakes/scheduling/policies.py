"""Which of the legal orders a machine takes.

For: the decision of a schedule, one number a launch: for how many further launches it is held back. Not for: what is legal
(`scheduler.py`).

A launch that is held 0 runs as soon as its stream and its waits allow, so all zeros is the order of issue. A launch that is `HELD` runs
when the host, or work that the host waits for, cannot go on without it. Among launches that may run, the one that was due first
runs first. Every legal order is reached by some numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from fakes.scheduling.launches import Launch, Queue

HELD = 1 << 62
"""Until somebody waits for it."""


class Policy(Protocol):
    """Decides the order. `decisions` are those taken so far that were not 0, by the launch's number: `Recorded` replays them."""

    decisions: dict[int, int]

    def hold(self, launch: Launch) -> int:
        """For how many further launches, of any stream, a launch is held back; 0 or more. Called once a launch, in the order of
        issue."""


class Recorded:
    """The decisions `given`, by the launch's number; 0 for every other launch."""

    def __init__(self, given: Mapping[int, int] | None = None) -> None:
        self.given = dict(given or {})
        self.decisions: dict[int, int] = {}

    def hold(self, launch: Launch) -> int:
        """See `Policy.hold`."""
        held = self.given.get(launch.number, 0)
        if held:
            self.decisions[launch.number] = held
        return held

    def __repr__(self) -> str:
        return f"Recorded({self.given})"


class Lazy:
    """Nothing runs before somebody waits for it, and then nothing else does. The decisions, all alike, are not kept."""

    def __init__(self) -> None:
        self.decisions: dict[int, int] = {}

    def hold(self, launch: Launch) -> int:  # noqa: ARG002
        """See `Policy.hold`."""
        return HELD


class Seeded:
    """A random order, the same for the same seed on any machine.

    Each stream is quick or slow for a while, so that one runs far ahead of another as often as they take turns.
    """

    _PACES = (0, 0, 0, 1, 3, 10, 40, HELD)

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._paces: dict[Queue, int] = {}
        self.decisions: dict[int, int] = {}

    def hold(self, launch: Launch) -> int:
        """See `Policy.hold`."""
        draw = self._random.random()
        pace = self._paces.get(launch.queue)
        if pace is None or draw < 0.15:
            pace = self._paces[launch.queue] = self._PACES[int(self._random.random() * len(self._PACES))]
        held = pace
        if draw > 0.85:
            held = self._PACES[int(self._random.random() * len(self._PACES))]
        if held:
            self.decisions[launch.number] = held
        return held


class Drawn:
    """Decisions out of a function, such as Hypothesis' `lambda: data.draw(integers(0, 8))`; more than 7 is `HELD`.

    Zero is the order of issue, so that a failing order shrinks to the few launches that had to be held.
    """

    def __init__(self, draw: Callable[[], int]) -> None:
        self._draw = draw
        self.decisions: dict[int, int] = {}

    def hold(self, launch: Launch) -> int:
        """See `Policy.hold`."""
        drawn = self._draw()
        held = drawn if drawn <= 7 else HELD
        if held:
            self.decisions[launch.number] = held
        return held
