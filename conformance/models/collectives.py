"""What every rank of a group must hold after a collective, in plain Python.

For: the oracle of COL. A tensor is a list of cells; a cell is a number where values are reduced, and whatever the caller likes where they
are only moved. Not for: making the cells (`conformance/programs/collective_cells.py`) or running anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    name = step["name"]
    if name not in _OUTPUTS:
        raise ValueError(f"the model has no collective {name!r}")
    return [_OUTPUTS[name](step, inputs, rank) for rank in range(len(inputs))]


def _first(inputs: Sequence[Tensors]) -> Tensors:
    return [tensors[0] if tensors else [] for tensors in inputs]


def _total(step: dict[str, Any], tensors: Sequence[Cells]) -> Cells:
    return reduced_cells(step["reduction"], tensors, step["is_truth"])


def _share(step: dict[str, Any], inputs: Sequence[Tensors], rank: int) -> Cells:
    total = _total(step, _first(inputs))
    count = len(total) // len(inputs)
    return total[rank * count : (rank + 1) * count]


def _sent_to(step: dict[str, Any], inputs: Sequence[Tensors], rank: int) -> Cells:
    return joined([parts(tensor, splits)[rank] for tensor, splits in zip(_first(inputs), step["splits"], strict=True)])


def _messages_to(step: dict[str, Any], inputs: Sequence[Tensors], rank: int) -> Tensors:
    messages = step["messages"]
    return [inputs[sender][_number(messages, index)] for index, (sender, receiver) in enumerate(messages) if receiver == rank]


_OUTPUTS: dict[str, Callable[[dict[str, Any], Sequence[Tensors], int], Tensors | None]] = {
    "all_reduce": lambda step, inputs, _: [_total(step, _first(inputs))],
    "reduce": lambda step, inputs, rank: [_total(step, _first(inputs))] if rank == step["root"] else None,
    "broadcast": lambda step, inputs, _: [_first(inputs)[step["root"]]],
    "all_gather": lambda _, inputs, __: _first(inputs),
    "all_gather_into_tensor": lambda _, inputs, __: [joined(_first(inputs))],
    "gather": lambda step, inputs, rank: _first(inputs) if rank == step["root"] else None,
    "scatter": lambda step, inputs, rank: [inputs[step["root"]][rank]],
    "reduce_scatter": lambda step, inputs, rank: [_total(step, [tensors[rank] for tensors in inputs])],
    "reduce_scatter_tensor": lambda step, inputs, rank: [_share(step, inputs, rank)],
    "all_to_all": lambda _, inputs, rank: [tensors[rank] for tensors in inputs],
    "all_to_all_single": lambda step, inputs, rank: [_sent_to(step, inputs, rank)],
    "send": _messages_to,
    "batch": _messages_to,
}


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
