"""What every rank of a group must hold after a collective, in plain Python.

For: the oracle of COL. A tensor is a list of cells; a cell is a number where values are reduced, and whatever the caller likes where they
are only moved. Not for: making the cells (`conformance/programs/collective_cells.py`) or running anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Cells = list[Any]
Tensors = list[Cells]


def reduced(reduction: str, values: Sequence[Any], is_truth: bool = False) -> Any:
    """One cell from the cells of all ranks, in group order. The sum of truth values is OR, their product AND."""
    if reduction == "AVG":
        return sum(values) / len(values)
    if reduction in ("MIN", "MAX"):
        return min(values) if reduction == "MIN" else max(values)
    total = values[0]
    for value in values[1:]:
        if is_truth:
            total = total or value if reduction == "SUM" else total and value
        else:
            total = total + value if reduction == "SUM" else total * value
    return total


def reduced_cells(reduction: str, tensors: Sequence[Cells], is_truth: bool = False) -> Cells:
    """A tensor from those of all ranks, element by element."""
    return [reduced(reduction, cells, is_truth) for cells in zip(*tensors, strict=True)]


def joined(tensors: Sequence[Cells]) -> Cells:
    """One after the other."""
    return [cell for tensor in tensors for cell in tensor]


def parts(tensor: Cells, sizes: Sequence[int]) -> Tensors:
    """A tensor cut into parts of these sizes."""
    cut, start = [], 0
    for size in sizes:
        cut.append(tensor[start : start + size])
        start += size
    return cut


def outputs(step: dict[str, Any], inputs: Sequence[Tensors]) -> list[Tensors | None]:
    """What each rank of the group holds afterwards, in group order; None for a rank whose tensors are not said to be anything.

    `inputs` are each rank's tensors. `step` has the collective's name and its own arguments: `root`, `reduction`, `is_truth`, `splits` (for
    each rank how many cells it sends to each other), `messages` (pairs of sender and receiver, in the order of sending).
    """
    size = len(inputs)
    everyone = range(size)
    first = [tensors[0] if tensors else [] for tensors in inputs]
    name = step["name"]
    if name in ("all_reduce", "reduce"):
        total = reduced_cells(step["reduction"], first, step["is_truth"])
        return [[total] if name == "all_reduce" or rank == step["root"] else None for rank in everyone]
    if name == "broadcast":
        return [[first[step["root"]]] for _ in everyone]
    if name == "all_gather":
        return [first for _ in everyone]
    if name == "all_gather_into_tensor":
        return [[joined(first)] for _ in everyone]
    if name == "gather":
        return [first if rank == step["root"] else None for rank in everyone]
    if name == "scatter":
        return [[inputs[step["root"]][rank]] for rank in everyone]
    if name == "reduce_scatter":
        return [[reduced_cells(step["reduction"], [inputs[r][rank] for r in everyone], step["is_truth"])] for rank in everyone]
    if name == "reduce_scatter_tensor":
        total = reduced_cells(step["reduction"], first, step["is_truth"])
        share = len(total) // size
        return [[total[rank * share : (rank + 1) * share]] for rank in everyone]
    if name == "all_to_all":
        return [[inputs[sender][rank] for sender in everyone] for rank in everyone]
    if name == "all_to_all_single":
        cut = [parts(first[sender], step["splits"][sender]) for sender in everyone]
        return [[joined([cut[sender][rank] for sender in everyone])] for rank in everyone]
    if name in ("send", "batch"):
        return [
            [inputs[sender][_number(step["messages"], index)] for index, (sender, to) in enumerate(step["messages"]) if to == rank]
            for rank in everyone
        ]
    raise ValueError(f"the model has no collective {name!r}")


def _number(messages: Sequence[Sequence[int]], index: int) -> int:
    """Which of its sender's messages a message is."""
    return sum(1 for earlier in messages[:index] if earlier[0] == messages[index][0])


def object_outputs(name: str, root: int, given: Sequence[Any]) -> list[Any]:
    """What each rank gets from a collective of Python objects. `given` is each rank's object; for `scatter_object_list` a list a rank,
    of which only the root's counts."""
    size = len(given)
    if name == "all_gather_object":
        return [list(given)] * size
    if name == "gather_object":
        return [list(given) if rank == root else None for rank in range(size)]
    if name == "broadcast_object_list":
        return [given[root]] * size
    if name == "scatter_object_list":
        return [given[root][rank] for rank in range(size)]
    raise ValueError(f"the model has no collective {name!r}")
