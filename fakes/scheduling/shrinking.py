"""The few decisions that make an order fail.

For: `shrink_schedule`, which takes a failing order and gives the smallest one that it finds to fail as well. Not for: finding a failing
order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fakes.scheduling.policies import HELD, Recorded


def shrink_schedule(fails: Callable[[Recorded], bool], decisions: Mapping[int, int]) -> Recorded:
    """The fewest decisions, and the smallest, for which `fails` is still true: no single one can be left out.

    `fails` runs the program with `machine.reset(schedule=policy)` and says whether it failed. `decisions` is `policy.decisions` of a
    run that did; they are for how many further launches each launch is held back, by its number.

    Raises:
        ValueError: the decisions given do not make it fail.
    """
    current = dict(decisions)
    if not fails(Recorded(current)):
        raise ValueError("the program does not fail with these decisions; give those of a run that failed")
    size = max(len(current) // 2, 1)
    while current:
        removed = False
        for start in range(0, len(current), size):
            drop = set(sorted(current)[start : start + size])
            fewer = {number: hold for number, hold in current.items() if number not in drop}
            if drop and fails(Recorded(fewer)):
                current, removed = fewer, True
                break
        if not removed:
            if size == 1:
                break
            size = max(size // 2, 1)
    for number in sorted(current):
        for hold in (1, 2, 3, 5, 10):
            if hold < current[number] and fails(Recorded({**current, number: hold})):
                current[number] = hold
                break
    return Recorded(current)


def described(policy: Recorded) -> str:
    """The decisions as sentences, one a line."""
    lines = [
        f"launch {number} is held until somebody waits for it"
        if hold >= HELD
        else f"launch {number} is held back for {hold} further launches"
        for number, hold in sorted(policy.given.items())
    ]
    return "\n".join(lines) or "every launch runs when it is issued"
