"""Programs of collectives as values: groups, and steps on them.

For: what the checks of COL run on ranks and hold against the model. Not for: drawing them (`conformance/collective_strategies.py`; ranks do
without Hypothesis), nor running a step (`conformance/rank_programs/collectives.py`).

A step is plain data, so that a program travels to ranks and replays as JSON:
`name`, `group` (index into the program's groups), `shape` (of one part), `dtype`, `seed`; where the collective has it `root` (a rank of the
group), `reduction`, `splits`, `messages`; `asynchronous`, and `hold`, the number of later steps that run before it is waited for. The name
`reload` stands for a cycle of destroying and rebuilding all groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from conformance.models import collectives as model
from conformance.programs import collective_cells
from harness.process_group.transport_tables import TransportTable

REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
MOVING = (
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "all_to_all",
    "all_to_all_single",
    "gather",
    "scatter",
    "send",
    "batch",
)
Step = dict[str, Any]


@dataclass(frozen=True)
class Abilities:
    """What a backend declares, with names in place of dtypes: `moves` and, for each reduction, what it takes."""

    names: tuple[str, ...]
    moves: tuple[str, ...]
    reduces: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, table: TransportTable, available: Sequence[torch.dtype]) -> Abilities:
        """The part of a transport's table that the device's dtypes leave."""

        def names(dtypes: Any) -> tuple[str, ...]:
            return tuple(name for name, dtype in collective_cells.DTYPES.items() if dtype in dtypes and dtype in available)

        reduces = {reduction: names(dtypes) for reduction, dtypes in sorted(table.reductions.items())}
        operations = tuple(name for name in (*REDUCING, *MOVING) if name in table.collectives or name == "batch")
        return cls(operations, names(table.dtypes), {reduction: found for reduction, found in reduces.items() if found})


def families(size: int) -> list[list[int]]:
    """Groups as frameworks make them over `size` ranks: tensor, pipeline, data, expert and embedding groups, singletons, all."""
    found = [list(range(size))]
    for width in (width for width in range(2, size) if size % width == 0):
        found += [list(range(start, start + width)) for start in range(0, size, width)]  # tensor parallel
        found += [list(range(start, size, size // width)) for start in range(size // width)]  # pipeline and data parallel
    found += [[0, size - 1], [0], [size - 1]]  # embedding, singletons
    found += [list(range(size - 1)), list(range(1, size))]  # overlapping, and not dividing anything
    unique: list[list[int]] = []
    for ranks in found:
        if ranks and ranks not in unique:
            unique.append(ranks)
    return unique


def inputs(step: Step, size: int) -> list[list[list[Any]]]:
    """Each rank's tensors, as cells, in group order."""
    return [_inputs_of_rank(step, size, rank) for rank in range(size)]


def _inputs_of_rank(step: Step, size: int, rank: int) -> list[list[Any]]:
    count, extents = math.prod(step["shape"]), []
    name = step["name"]
    if name in ("reduce_scatter", "all_to_all", "scatter"):
        extents = [count] * size
    elif name == "reduce_scatter_tensor":
        extents = [count * size]
    elif name == "all_to_all_single":
        extents = [count * sum(step["rows"][rank])]
    elif name in ("send", "batch"):
        extents = [count for sender, _ in step["messages"] if sender == rank]
    else:
        extents = [count]
    if name in REDUCING:
        return [
            collective_cells.reduced_cells(step["seed"], rank, number, extent, step["dtype"], step["reduction"], size)
            for number, extent in enumerate(extents)
        ]
    return [
        collective_cells.moved_cells(step["seed"], rank, number, extent, step["dtype"]) for number, extent in enumerate(extents)
    ]


def due(step: Step, size: int) -> list[list[list[Any]] | None]:
    """What the model says that each rank of the group must hold."""
    count = math.prod(step["shape"])
    splits = [[rows * count for rows in row] for row in step.get("rows", [])]
    return model.outputs({**step, "splits": splits}, inputs(step, size))


def difference(step: Step, size: int, rank: int, found: list[list[Any]] | None, right: list[list[Any]] | None) -> str:
    """How a rank's tensors differ from those due, in words; empty where they do not."""
    if right is None or found == right:
        return ""
    if found is not None and step.get("reduction") == "AVG" and [len(one) for one in found] == [len(one) for one in right]:
        largest = max((abs(cell) for tensors in inputs(step, size) for one in tensors for cell in one), default=0.0)
        pairs = [pair for one, other in zip(found, right, strict=True) for pair in zip(one, other, strict=True)]
        if all(collective_cells.is_close(came, was_due, step["dtype"], size, largest) for came, was_due in pairs):
            return ""
    return f"rank {rank} of the group holds {found}; due was {right}"
