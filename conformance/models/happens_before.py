"""The oracle of stream programs: which accesses are unordered, and what the host must read.

For: telling race-free programs from racy ones, and the values that every conforming device gives (STR-11). Not for: listing every order
of a racy program (`stream_orders.py`).

Vector clocks: a lane's clock counts, lane by lane, how many launches are surely done when the lane's next action begins. Two accesses to a
buffer, one of them a write, race where neither is in the other's past. A launch that races with nothing and whose inputs are determined has
one result; what depends on a race is undetermined, and no device is judged by it. For a race-free program everything is determined, and the
order of issue, which respects every edge, gives the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.models.stream_actions import HOST_LANE, Action, Launch, Lowering, Mark, Token, Wait, is_reading
from conformance.programs.stream_program import StreamProgram
from conformance.programs.stream_steps import Step

Clock = dict[int, int]


@dataclass(frozen=True)
class Access:
    """One use of a buffer by a launch, the `tick`-th of its lane."""

    step: int
    lane: int
    tick: int
    writes: bool


@dataclass(frozen=True)
class Race:
    """Two accesses of a buffer, at least one a write, neither ordered before the other; `first` was issued first."""

    buffer: str
    first: Access
    second: Access

    def __str__(self) -> str:
        def shown(access: Access) -> str:
            where = "the host" if access.lane == HOST_LANE else f"s{access.lane}" if access.lane < 1000 else "the free"
            return f"step {access.step} ({where} {'writes' if access.writes else 'reads'})"

        return f"{self.buffer.partition('#')[0]}: {shown(self.first)} and {shown(self.second)} are not ordered"


@dataclass(frozen=True)
class Verdict:
    """What the oracle says of a program. `values` holds, by the name of each reading, what the host must read, or None where that is
    undetermined."""

    races: tuple[Race, ...]
    values: dict[str, int | None]


class HappensBefore:
    """The order that the steps so far imply."""

    def __init__(self, streams: tuple[int, ...]) -> None:
        self.lowering = Lowering(streams)
        self.actions: list[Action] = []
        self.races: list[Race] = []
        self._clocks: dict[int, Clock] = {HOST_LANE: {}}
        self._tokens: dict[Token, Clock] = {}
        self._accesses: dict[str, list[Access]] = {}
        self._steps = 0

    def copy(self) -> HappensBefore:
        """One that goes its own way from here, to try a step."""
        other = HappensBefore(())
        other.lowering = self.lowering.copy()
        other.actions, other.races, other._steps = list(self.actions), list(self.races), self._steps
        other._clocks = {lane: dict(clock) for lane, clock in self._clocks.items()}
        other._tokens = dict(self._tokens)
        other._accesses = {buffer: list(accesses) for buffer, accesses in self._accesses.items()}
        return other

    def apply(self, step: Step) -> list[Race]:
        """Take a step; the races that it has with earlier ones."""
        races = self._take(self.lowering.actions(self._steps, step))
        self._steps += 1
        return races

    def event_covers(self, event: str, access: Access) -> bool:
        """Whether whoever waits for an event now comes after an access."""
        token = self.lowering.event_token(event)
        return token is not None and self._tokens[token].get(access.lane, 0) >= access.tick

    def finish(self) -> list[Race]:
        """Take the final wait and the final readings."""
        return self._take(self.lowering.final_actions(self._steps))

    def _take(self, actions: Sequence[Action]) -> list[Race]:
        found: list[Race] = []
        for action in actions:
            clock = self._clocks.setdefault(action.lane, {})
            if action.lane != HOST_LANE:
                _join(clock, self._clocks[HOST_LANE])
            match action:
                case Launch():
                    found += self._launch(action, clock)
                case Mark(_, _, token):
                    self._tokens[token] = dict(clock)
                case Wait(_, _, token):
                    _join(clock, self._tokens[token])
        self.actions += actions
        self.races += found
        return found

    def _launch(self, launch: Launch, clock: Clock) -> list[Race]:
        tick = clock.get(launch.lane, 0) + 1
        races: list[Race] = []
        uses = [] if launch.read is None else [(launch.read, False)]
        if not is_reading(launch.write):
            uses.append((launch.write, True))
        for buffer, writes in uses:
            access = Access(launch.step, launch.lane, tick, writes)
            # All accesses are kept: one that an ordered write follows may still race with what comes later.
            earlier = self._accesses.setdefault(buffer, [])
            races += [
                Race(buffer, before, access)
                for before in earlier
                if (writes or before.writes) and clock.get(before.lane, 0) < before.tick
            ]
            earlier.append(access)
        clock[launch.lane] = tick
        return races


def _join(clock: Clock, other: Clock) -> None:
    for lane, tick in other.items():
        if tick > clock.get(lane, 0):
            clock[lane] = tick


def judge(program: StreamProgram) -> Verdict:
    """What a conforming device may give."""
    order = HappensBefore(program.streams)
    for step in program.steps:
        order.apply(step)
    order.finish()
    racing = {(race.buffer, access.lane, access.tick) for race in order.races for access in (race.first, race.second)}
    values: dict[str, int | None] = {}
    ticks: dict[int, int] = {}
    for action in order.actions:
        if not isinstance(action, Launch):
            continue
        tick = ticks[action.lane] = ticks.get(action.lane, 0) + 1
        read = None if action.read is None or (action.read, action.lane, tick) in racing else values[action.read]
        result = action.result(values.get(action.write), read)
        values[action.write] = None if (action.write, action.lane, tick) in racing else result
    return Verdict(tuple(order.races), {name: value for name, value in values.items() if is_reading(name)})
