"""Running a program of collectives on the ranks of a run, and holding it against the model.

For: checks of COL. Not for: drawing programs (`conformance/programs/collective_program.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import reject

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import require
from conformance.device_dtypes import device_dtypes
from conformance.programs import collective_cells
from conformance.programs.collective_program import Abilities, Step, difference, due
from conformance.ranks.errors import RankFailure
from harness.process_group.transport_tables import TRANSPORT_TABLES, transport_table

_MOST_FAILURES = 3
_failures: dict[str, dict[str, RankFailure]] = {}


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


def run_on_ranks(backend: BackendUnderTest, check: str, program: Callable[..., Any], **arguments: Any) -> list[Any]:
    """The ranks' values.

    A rank that raises, dies or stalls costs seconds and all ranks. So once a check has seen a few such failures, only those are
    failures again, and other examples of it are put aside, which ends the search for a smaller one.

    Raises:
        RankFailure: see above.
    """
    seen = _failures.setdefault(check, {})
    key = json.dumps(arguments, sort_keys=True)
    if key in seen:
        raise seen[key]
    if len(seen) >= _MOST_FAILURES:
        reject()
    try:
        return backend.ranks.run(program, **arguments)
    except RankFailure as failure:
        seen[key] = failure
        raise


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
