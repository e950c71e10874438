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
    decisions = strategies.tuples(strategies.integers(0, launches - 1), holds)
    # Not `dictionaries`: those draw a number by its place among the numbers left, so that leaving one entry out changes the others.
    return strategies.lists(decisions, max_size=launches).map(lambda drawn: Recorded(dict(drawn)))
