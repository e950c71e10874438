"""Orders drawn by Hypothesis.

For: `schedules`, whose failing examples shrink to the few launches that had to be held back. Not for: anything else; only this module
needs Hypothesis.
"""

from __future__ import annotations

from hypothesis import strategies

from fakes.scheduling.policies import HELD, Recorded


def schedules(launches: int = 64) -> strategies.SearchStrategy[Recorded]:
    """Policies for `fakes.install(schedule=…)` that hold back some of the first `launches` launches; the simplest is the order of
    issue."""
    holds = strategies.sampled_from((1, 2, 3, 5, 10, 40, HELD))
    return strategies.dictionaries(strategies.integers(0, launches - 1), holds, max_size=launches).map(Recorded)
