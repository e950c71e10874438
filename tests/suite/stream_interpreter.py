"""A tiny machine that takes a stream program's steps in every order that streams, events and the host allow.

For: judging the oracle by something that knows no clocks: it walks through all states, one action at a time. A program races where two
accesses of a buffer, one of them a write, are both about to happen in some state. Not for: programs of more than a few steps.
"""

from __future__ import annotations

from conformance.models.stream_actions import HOST_LANE, Launch, Lowering, Mark, Wait, is_reading
from conformance.programs.stream_program import StreamProgram


def every_outcome(program: StreamProgram) -> tuple[set[tuple[tuple[str, int | None], ...]], bool]:
    """What the host can read, over all orders, and whether two accesses can happen at the same time."""
    lowering = Lowering(program.streams)
    actions = [action for number, step in enumerate(program.steps) for action in lowering.actions(number, step)]
    actions += lowering.final_actions(len(program.steps))
    outcomes, racy, seen = set(), False, set()
    # A state: what each lane still has to do, the records reached, and the contents of buffers.
    states = [(tuple(actions), (), frozenset(), ())]
    while states:
        state = states.pop()
        if state in seen:
            continue
        seen.add(state)
        to_issue, queued, reached, contents = state
        ready = _ready(to_issue, queued, reached)
        launches = [action for action in ready if isinstance(action, Launch)]
        racy = racy or any(_conflict(one, other) for at, one in enumerate(launches) for other in launches[:at])
        if not to_issue and not queued:
            outcomes.add(tuple(sorted((name, value) for name, value in contents if is_reading(name))))
        if to_issue and to_issue[0].lane != HOST_LANE:
            states.append((to_issue[1:], (*queued, to_issue[0]), reached, contents))
        for action in ready:
            after = _after(action, contents)
            now = reached | {action.token} if isinstance(action, Mark) else reached
            if action.lane == HOST_LANE:
                states.append((to_issue[1:], queued, now, after))
            else:
                at = queued.index(action)
                states.append((to_issue, queued[:at] + queued[at + 1 :], now, after))
    return outcomes, racy


def _ready(to_issue, queued, reached):
    """The next action of each lane, where nothing holds it up."""
    heads = {}
    for action in queued:
        heads.setdefault(action.lane, action)
    if to_issue and to_issue[0].lane == HOST_LANE:
        heads[HOST_LANE] = to_issue[0]
    return [action for action in heads.values() if not isinstance(action, Wait) or action.token in reached]


def _conflict(one: Launch, other: Launch) -> bool:
    written, also_written = {one.write}, {other.write}
    return bool(written & {other.write, other.read} or also_written & {one.read})


def _after(action, contents):
    if not isinstance(action, Launch):
        return contents
    values = dict(contents)
    values[action.write] = action.result(values.get(action.write), values.get(action.read))
    return tuple(sorted(values.items()))
