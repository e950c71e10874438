"""Faults of a transport's results: what arrives is wrong, or arrives from the wrong rank.

For: COL-1 and COL-3. Not for: order on streams, refusals and mixed groups (`collective_order.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from fakes import collective_kernels as kernels
from fakes.collective_kernels import Collective
from fakes.faults.fault import Fault
from fakes.patching import Patches


def _kernel(name: str, make: Callable[[Any], Any]) -> Callable[[Patches], None]:
    """A fault in one function of the kernels; `make` gets the right one and returns the wrong one."""
    return lambda patches: patches.set(kernels, name, make(getattr(kernels, name)))


def _contribution(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Patches], None]:
    """A fault in what a rank brings to a reduction."""
    return _kernel("values_to_reduce", lambda right: lambda tensor: change(right(tensor)))


def _reductions(change: Callable[[str, torch.dtype], str]) -> Callable[[Patches], None]:
    """A fault in choosing the reduction."""
    return _kernel("gloo_reduction", lambda right: lambda name, dtype: right(change(name, dtype), dtype))


def _roots(name: str, position: int, change: Callable[[Any, int], int]) -> Callable[[Patches], None]:
    """A fault in the root of one collective, which is the argument at `position`."""

    def make(right: Any) -> Any:
        def wrong(group: Any, *arguments: Any) -> Collective:
            changed = list(arguments)
            changed[position] = change(group, changed[position])
            collective: Collective = right(group, *changed)
            return collective

        return wrong

    return _kernel(name, make)


def _global_rank(group: Any, root: int) -> int:
    return dist.get_global_rank(group, root) % int(group.size())


def _last_rank_brings_nothing(values: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(values) if dist.get_rank() == dist.get_world_size() - 1 else values


def _through_double(values: torch.Tensor) -> torch.Tensor:
    return values.double().to(values.dtype) if values.dtype == torch.int64 else values


def _through_bfloat16(values: torch.Tensor) -> torch.Tensor:
    return values.bfloat16().to(values.dtype) if values.dtype == torch.float16 else values


def _truth_adds_up(right: Any) -> Any:
    return lambda name, dtype: c10d.ReduceOp.SUM if (name, dtype) == ("SUM", torch.bool) else right(name, dtype)


def _truth_wraps(right: Any) -> Any:
    return lambda name, dtype: c10d.ReduceOp.BXOR if (name, dtype) == ("SUM", torch.bool) else right(name, dtype)


def _mean_for_sum(right: Any) -> Any:
    def finished(values: torch.Tensor, name: str, size: int) -> torch.Tensor:
        if name == "SUM" and values.is_floating_point():
            return values / size
        result: torch.Tensor = right(values, name, size)
        return result

    return finished


def _whole_means(right: Any) -> Any:
    return lambda values, name, size: torch.floor(right(values, name, size)) if name == "AVG" else right(values, name, size)


def _gathers_backwards(right: Any) -> Any:
    return lambda group, outputs, *rest: right(group, [listed[::-1] for listed in outputs], *rest)


def _scatters_backwards(right: Any) -> Any:
    return lambda group, outputs, inputs, *rest: right(group, outputs, [listed[::-1] for listed in inputs], *rest)


def _scatters_the_first_part(right: Any) -> Any:
    return lambda group, outputs, inputs, *rest: right(group, outputs, [[listed[0]] * len(listed) for listed in inputs], *rest)


def _keeps_what_it_sends(right: Any) -> Any:
    def exchange(used: Any, output: torch.Tensor, source: torch.Tensor, received: list[int], sent: list[int], timeout: int) -> Any:
        work = right(used, output.clone(), source, received, sent, timeout)
        count = min(output.numel(), source.numel())
        output[:count] = source[:count]
        return work

    return exchange


def _ignores_splits(right: Any) -> Any:
    def all_to_all_single(group: Any, output: Any, source: Any, received: Any, sent: Any, timeout: int) -> Collective:
        size = int(group.size())
        if output.shape[0] % size == 0 and source.shape[0] == output.shape[0]:
            received, sent = [], []
        collective: Collective = right(group, output, source, received, sent, timeout)
        return collective

    return all_to_all_single


def _leaves_out_own_part(right: Any) -> Any:
    def all_gather(group: Any, outputs: Any, inputs: Any, timeout: int) -> Collective:
        collective: Collective = right(group, outputs, inputs, timeout)
        writes = tuple(one for place, one in enumerate(collective.writes) if place % group.size() != group.rank())

        def start(used: Any) -> Any:
            own = [kernels.taken(listed[group.rank()]) for listed in outputs]
            works, delivery = collective.start(used)

            def partly() -> None:
                delivery()
                for listed, before in zip(outputs, own, strict=True):
                    kernels.deliver(listed[group.rank()], before)

            return works, partly

        return replace(collective, start=start, writes=writes)

    return all_gather


def _no_empty_tensors(right: Any) -> Any:
    def taken(tensor: Any) -> Any:
        if tensor.numel() == 0:
            raise RuntimeError("a transfer must have at least one byte")
        return right(tensor)

    return taken


def _root_keeps_empty_tensors(right: Any) -> Any:
    """The root of an empty broadcast returns at once; the others wait for something to come."""

    def broadcast(group: Any, tensors: Any, root: int, *rest: Any) -> Collective:
        collective: Collective = right(group, tensors, root, *rest)
        if tensors[0].numel():
            return collective

        def start(used: Any) -> Any:
            works = [] if group.rank() == root else [used.recv([torch.empty(1, dtype=torch.uint8)], root, 9)]
            return works, lambda: None

        return replace(collective, start=start)

    return broadcast


def _messages_overtake(right: Any) -> Any:
    """Of two messages of one sender that are under way, each arrives in the other's place."""
    waiting: dict[int, list[tuple[Any, torch.Tensor, Any]]] = {}

    def receive(group: Any, tensors: Any, source: int, tag: int) -> Collective:
        collective: Collective = right(group, tensors, source, tag)

        def start(used: Any) -> Any:
            staged = kernels.room(tensors[0])
            work = used.recv([staged], source, tag)
            listed = waiting.setdefault(source, [])
            listed.append((tensors[0], staged, work))

            def delivery() -> None:
                pairs = waiting.pop(source, [])
                for (tensor, _, _), (_, other, transfer) in zip(pairs, pairs[::-1], strict=True):
                    transfer.wait()
                    kernels.deliver(tensor, other)

            return [work], delivery

        return replace(collective, start=start)

    return receive


def _to_itself_through_the_group(right: Any) -> Any:
    return lambda group, tensors, destination, tag: right(group, tensors, _global_rank(group, destination), tag)


def _objects_from_the_next(patches: Patches) -> None:
    right = dist.broadcast_object_list

    def broadcast_object_list(objects: list[Any], src: int = 0, group: Any = None, **keywords: Any) -> None:
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        right(objects, src=ranks[(ranks.index(src) + 1) % len(ranks)], group=group, **keywords)

    patches.set(dist, "broadcast_object_list", broadcast_object_list)


def _barrier_of_one(right: Any) -> Any:
    return lambda *arguments: replace(right(*arguments), start=lambda _: ([], lambda: None))


def _forgets_a_dtype(patches: Patches) -> None:
    from fakes import collective_checks

    right = collective_checks.require_dtype

    def require_dtype(label: str, dtype: torch.dtype, dtypes: Any) -> None:
        if dtype == torch.int8 and dtypes is not None:
            raise TypeError(f"{label}: int8 cannot be reduced")
        right(label, dtype, dtypes)

    patches.set(collective_checks, "require_dtype", require_dtype)


_TABLE: tuple[tuple[str, tuple[str, ...], str, Callable[[Patches], None]], ...] = (
    (
        "col-last-rank-dropped",
        ("COL-1",),
        "A reduction leaves out what the last rank brings.",
        _contribution(_last_rank_brings_nothing),
    ),
    ("col-maximum-for-sum", ("COL-1",), "SUM gives the maximum.", _reductions(lambda name, _: "MAX" if name == "SUM" else name)),
    (
        "col-sum-for-product",
        ("COL-1",),
        "PRODUCT gives the sum.",
        _reductions(lambda name, _: "SUM" if name == "PRODUCT" else name),
    ),
    (
        "col-minimum-for-maximum",
        ("COL-1",),
        "MAX gives the minimum.",
        _reductions(lambda name, _: "MIN" if name == "MAX" else name),
    ),
    ("col-mean-for-sum", ("COL-1",), "SUM of floating values gives their mean.", _kernel("finished", _mean_for_sum)),
    ("col-mean-rounded-down", ("COL-1",), "AVG divides as integers do.", _kernel("finished", _whole_means)),
    (
        "col-truth-adds-up",
        ("COL-1",),
        "The sum of truth values is their number, in a byte.",
        _kernel("gloo_reduction", _truth_adds_up),
    ),
    ("col-truth-wraps", ("COL-1",), "The sum of an even number of true values is false.", _kernel("gloo_reduction", _truth_wraps)),
    ("col-integers-through-double", ("COL-1",), "64-bit integers are reduced as doubles.", _contribution(_through_double)),
    ("col-half-through-bfloat16", ("COL-1",), "float16 is reduced with the bits of bfloat16.", _contribution(_through_bfloat16)),
    ("col-int8-refused", ("COL-1",), "A declared dtype is refused in reductions.", _forgets_a_dtype),
    (
        "col-broadcast-from-first",
        ("COL-1",),
        "A broadcast comes from the group's first rank.",
        _roots("broadcast", 1, lambda *_: 0),
    ),
    ("col-broadcast-from-global-rank", ("COL-1",), "A broadcast's root is a global rank.", _roots("broadcast", 1, _global_rank)),
    ("col-reduce-to-global-rank", ("COL-1",), "A reduction's root is a global rank.", _roots("reduce", 2, _global_rank)),
    ("col-gather-backwards", ("COL-1",), "Gathered parts stand in reverse order.", _kernel("gather", _gathers_backwards)),
    (
        "col-all-gather-backwards",
        ("COL-1",),
        "Parts gathered by all stand in reverse order.",
        _kernel("all_gather", _gathers_backwards),
    ),
    ("col-all-gather-without-own", ("COL-1",), "A rank's own part is not gathered.", _kernel("all_gather", _leaves_out_own_part)),
    (
        "col-scatter-backwards",
        ("COL-1",),
        "Scattered parts go to the ranks in reverse order.",
        _kernel("scatter", _scatters_backwards),
    ),
    ("col-scatter-first-to-all", ("COL-1",), "Every rank gets the first part.", _kernel("scatter", _scatters_the_first_part)),
    (
        "col-reduce-scatter-next-slice",
        ("COL-1",),
        "A rank gets its neighbour's part of a reduction.",
        _kernel("slice_of_rank", lambda right: lambda values, sizes, rank: right(values, sizes, (rank + 1) % len(sizes))),
    ),
    (
        "col-all-to-all-keeps-own",
        ("COL-1",),
        "An exchange leaves each rank what it sent.",
        _kernel("exchange", _keeps_what_it_sends),
    ),
    (
        "col-all-to-all-ignores-splits",
        ("COL-1",),
        "Uneven splits are exchanged as even ones.",
        _kernel("all_to_all_single", _ignores_splits),
    ),
    ("col-empty-refused", ("COL-1",), "An empty tensor raises.", _kernel("taken", _no_empty_tensors)),
    (
        "col-empty-waits",
        ("COL-1",),
        "An empty broadcast waits for something that nobody sends.",
        _kernel("broadcast", _root_keeps_empty_tensors),
    ),
    (
        "col-messages-overtake",
        ("COL-1",),
        "Two messages of one sender arrive in each other's place.",
        _kernel("receive", _messages_overtake),
    ),
    ("col-message-to-global-rank", ("COL-1",), "A message goes to a global rank.", _kernel("send", _to_itself_through_the_group)),
    ("col-objects-from-next", ("COL-1",), "An object is broadcast by the rank after its source.", _objects_from_the_next),
    ("col-barrier-does-nothing", ("COL-1",), "A barrier lets everybody through.", _kernel("barrier", _barrier_of_one)),
)
FAULTS: tuple[Fault, ...] = tuple(
    Fault(identity, clauses, summary, "derived", apply) for identity, clauses, summary, apply in _TABLE
)
"""Every fault of this area."""
