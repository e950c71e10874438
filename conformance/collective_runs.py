"""Running a program of collectives on the ranks of a run, and holding it against the model.

For: checks of COL. Not for: drawing programs (`conformance/programs/collective_program.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import reject

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import require
from conformance.device_dtypes import device_dtypes
from conformance.errors import ClauseViolation
from conformance.programs import collective_cells
from conformance.programs.collective_program import Abilities, Step, difference, due
from conformance.ranks.errors import RankFailure
from harness.process_group.transport_tables import TRANSPORT_TABLES, transport_table

_PATIENCE = 150
_COST_OF_RANKS = 50


@dataclass
class _Search:
    """What a check has seen since its first failure."""

    failures: dict[str, Exception] = field(default_factory=dict)
    spent: int = 0


_searches: dict[str, _Search] = {}


def abilities(backend: BackendUnderTest) -> Abilities:
    """What the backend's transport declares, as far as its devices have the dtypes."""
    return Abilities.of(transport_table(backend.accelerator), device_dtypes(backend, tuple(collective_cells.DTYPES.values())))


def host_abilities() -> Abilities:
    """What gloo has for the host's tensors."""
    return Abilities.of(TRANSPORT_TABLES["gloo"], tuple(collective_cells.DTYPES.values()))


def both(one: Abilities, other: Abilities) -> Abilities:
    """What two transports have in common."""
    reduces = {
        reduction: tuple(dtype for dtype in dtypes if dtype in other.reduces.get(reduction, ()))
        for reduction, dtypes in one.reduces.items()
    }
    return Abilities(
        tuple(name for name in one.names if name in other.names),
        tuple(dtype for dtype in one.moves if dtype in other.moves),
        {reduction: dtypes for reduction, dtypes in reduces.items() if dtypes},
    )


def run_on_ranks(
    backend: BackendUnderTest,
    check: str,
    program: Callable[..., Any],
    judge: Callable[[list[Any]], None],
    *,
    patience: int = _PATIENCE,
    **arguments: Any,
) -> None:
    """Run a program and have the ranks' values judged.

    Once an example of a check has failed, Hypothesis tries smaller ones; so many of them that `patience` is used up, one for each and fifty
    for one in which a rank raises, dies or stalls, which takes seconds. Then only those that failed fail again, and others are put aside.

    Raises:
        RankFailure, ClauseViolation: a rank failed, or the judge did not like it.
    """
    search = _searches.setdefault(check, _Search())
    key = json.dumps(arguments, sort_keys=True)
    if key in search.failures:
        raise search.failures[key]
    if search.spent >= patience:
        reject()
    try:
        judge(backend.ranks.run(program, **arguments))
    except (RankFailure, ClauseViolation) as failure:
        search.failures[key] = failure
        search.spent += _COST_OF_RANKS if isinstance(failure, RankFailure) else 1
        raise
    search.spent += 1 if search.failures else 0


def require_model(groups: Sequence[list[int]], steps: Sequence[Step], values: Sequence[list[Any]]) -> None:
    """Require of every step that each rank of its group holds what the model says. `values` are the ranks' answers, by global rank."""
    for number, step in enumerate(steps):
        if step["name"] == "reload":
            continue
        ranks = groups[step["group"]]
        right = due(step, len(ranks))
        for own, rank in enumerate(ranks):
            wrong = difference(step, len(ranks), own, values[rank][number], right[own])
            require(not wrong, f"step {number}, {step['name']} on ranks {ranks}: {wrong}\n{step}")


def against_model(groups: Sequence[list[int]], steps: Sequence[Step]) -> Callable[[list[Any]], None]:
    """A judge that requires the model's result."""
    return lambda values: require_model(groups, steps, values)
