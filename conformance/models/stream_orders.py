"""Every result that some legal order of a small stream program gives, and which missing wait explains a wrong one.

For: saying of a wrong result what must have gone wrong, as "this is what comes out when the wait in step 3 does nothing". Not for:
judging a device; that is the oracle's (`happens_before.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.models.stream_actions import HOST_LANE, Action, Launch, Lowering, Mark, Token, Wait, is_reading
from conformance.programs.stream_program import StreamProgram

LIMIT = 20_000
"""States after which a program counts as too large."""

Readings = tuple[tuple[str, int | None], ...]
"""What the host read, by name, sorted; None is an undetermined value."""


Order = tuple[tuple[int, int], ...]
"""Launches in the order in which they ran: step and lane of each."""


@dataclass(frozen=True)
class Explanation:
    """A result comes out where the waits of one step do nothing, in this order of launches."""

    step: int
    order: Order


class TooManyOrders(Exception):
    """A program has more states than `LIMIT`."""


def possible_readings(
    program: StreamProgram, without_waits_of: frozenset[int] = frozenset(), limit: int = LIMIT
) -> dict[Readings, Order]:
    """What the host may read, over all legal orders, and one order that gives it. The waits of the given steps do nothing; steps go by
    their number, and the number of steps is the final wait.

    Only launches are tried in every order: records, waits and the issue of work take effect as soon as they can, which loses no result
    since they only ever enable more.

    Raises:
        TooManyOrders: more states than `limit`.
    """
    actions = _actions_of(program, without_waits_of)
    lanes = sorted({action.lane for action in actions} - {HOST_LANE})
    found: dict[Readings, Order] = {}
    start = _settle(actions, _State(0, dict.fromkeys(lanes, 0), frozenset(), {}, ()))
    stack, seen = [start], {start.key()}
    while stack:
        state = stack.pop()
        moves = [lane for lane in (HOST_LANE, *lanes) if isinstance(_head(actions, state, lane), Launch)]
        if not moves and state.issued == len(actions):
            found.setdefault(tuple(sorted((name, value) for name, value in state.values.items() if is_reading(name))), state.order)
        for lane in moves:
            after = _settle(actions, _run(actions, state, lane))
            key = after.key()
            if key not in seen:
                if len(seen) >= limit:
                    raise TooManyOrders(f"more than {limit} states")
                seen.add(key)
                stack.append(after)
    return found


def missing_waits(program: StreamProgram, readings: Mapping[str, int | None]) -> list[Explanation]:
    """The steps such that the readings come out in some order when the waits of that one step do nothing; empty where no one step explains
    them, or the program is too large to tell. A reading of None was not made or not of one value, and tells nothing."""
    explained = []
    waiting = {action.step for action in _actions_of(program, frozenset()) if isinstance(action, Wait)}
    try:
        for number in sorted(waiting):
            for result, order in possible_readings(program, frozenset({number})).items():
                if all(_agree(value, readings.get(name)) for name, value in result):
                    explained.append(Explanation(number, order))
                    break
    except TooManyOrders:
        return []
    return explained


def _agree(possible: int | None, seen: int | None) -> bool:
    return possible is None or seen is None or possible == seen


class _State:
    """Where the lanes are. `issued` actions have left the host; `done[lane]` of the lane's own are behind it."""

    __slots__ = ("done", "issued", "order", "reached", "values")

    def __init__(
        self, issued: int, done: dict[int, int], reached: frozenset[Token], values: dict[str, int | None], order: Order
    ) -> None:
        self.issued, self.done, self.reached, self.values, self.order = issued, done, reached, values, order

    def key(self) -> tuple[object, ...]:
        return self.issued, tuple(self.done.values()), tuple(sorted(self.values.items()))


def _actions_of(program: StreamProgram, without_waits_of: frozenset[int]) -> list[Action]:
    lowering = Lowering(program.streams)
    actions = [action for number, step in enumerate(program.steps) for action in lowering.actions(number, step)]
    actions += lowering.final_actions(len(program.steps))
    return [action for action in actions if not (isinstance(action, Wait) and action.step in without_waits_of)]


def _head(actions: list[Action], state: _State, lane: int) -> Action | None:
    """The next action of a lane that was issued; the host's is the next to be issued, where it is the host's own."""
    if lane == HOST_LANE:
        return actions[state.issued] if state.issued < len(actions) and actions[state.issued].lane == HOST_LANE else None
    waiting = [action for action in actions[: state.issued] if action.lane == lane]
    return waiting[state.done[lane]] if state.done[lane] < len(waiting) else None


def _settle(actions: list[Action], state: _State) -> _State:
    """The state once everything has taken effect that no launch holds up."""
    issued, done, reached = state.issued, dict(state.done), set(state.reached)
    moved = True
    while moved:
        moved = False
        while issued < len(actions) and (actions[issued].lane != HOST_LANE or _passes(actions[issued], reached)):
            issued += 1
            moved = True
        now = _State(issued, done, frozenset(reached), state.values, state.order)
        for lane in done:
            head = _head(actions, now, lane)
            while head is not None and _passes(head, reached):
                if isinstance(head, Mark):
                    reached.add(head.token)
                done[lane] += 1
                moved = True
                head = _head(actions, now, lane)
    return _State(issued, done, frozenset(reached), state.values, state.order)


def _passes(action: Action, reached: set[Token]) -> bool:
    return isinstance(action, Mark) or (isinstance(action, Wait) and action.token in reached)


def _run(actions: list[Action], state: _State, lane: int) -> _State:
    launch = _head(actions, state, lane)
    values, done, issued = dict(state.values), dict(state.done), state.issued
    if isinstance(launch, Launch):
        read = None if launch.read is None else values.get(launch.read)
        values[launch.write] = launch.result(values.get(launch.write), read)
    if lane == HOST_LANE:
        issued += 1
    else:
        done[lane] += 1
    order = state.order if launch is None else (*state.order, (launch.step, lane))
    return _State(issued, done, state.reached, values, order)
