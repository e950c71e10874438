"""Faults in operators: wrong results for some dtype, value, layout or size (OPS).

For: the catalogue. Not for: copies between host and device (`devices.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply
from fakes.patching import Patches

aten = torch.ops.aten
_BOUND = 1 << 20  # what OPS-3 counts to on a simulated device


def _kernels(*operators: Any, wrong: Callable[..., Any]) -> Apply:
    """Compute operators with `wrong(right, *arguments)`, which may call `right(*arguments)`."""

    def apply(patches: Patches) -> None:
        from fakes import composed_operators, dispatch

        for operator in operators:
            right = composed_operators.KERNELS.get(operator, operator._op)
            patches.set_item(composed_operators.KERNELS, operator, _bound(wrong, right))
        patches.set(dispatch, "_plans", {})

    return apply


def _bound(wrong: Callable[..., Any], right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **keywords: wrong(right, *arguments, **keywords)


def _sum_in_floats(right: Callable[..., Any], x: torch.Tensor, dim: int, *, dtype: Any = None) -> Any:
    return x.double().cumsum(dim).to(right(x, dim, dtype=dtype).dtype)


def _last_wins(_right: Callable[..., Any], x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    return x.scatter(dim, index, source)


def _towards_zero(_right: Callable[..., Any], x: torch.Tensor, divisor: Any) -> Any:
    return torch.fmod(x, divisor)


def _always_largest(right: Callable[..., Any], x: torch.Tensor, k: int, dim: int = -1, *_order: bool) -> Any:
    return right(x, k, dim, True, True)


def _one_index_twice(right: Callable[..., Any], x: torch.Tensor, k: int, *rest: Any) -> Any:
    values, index = right(x, k, *rest)
    return values, index[..., :1].expand_as(index).clone() if k > 1 else index


def _ties_from_the_end(
    right: Callable[..., Any], x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    values, index = right(x.flip(dim), stable=stable, dim=dim, descending=descending)
    return values, (x.shape[dim] if x.dim() else 1) - 1 - index


def _memory_order(right: Callable[..., Any], x: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    flat = x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride(), 0) if _has_room(x) else x
    return right(flat, dim, index)


def _has_room(x: torch.Tensor) -> bool:
    return x.numel() <= x.untyped_storage().nbytes() // x.dtype.itemsize


def _as_short(right: Callable[..., Any], x: torch.Tensor, *rest: Any) -> Any:
    return right(x.to(torch.int32), *rest).to(x.dtype)


def _no_minimum(right: Callable[..., Any], x: torch.Tensor, weights: Any = None, minlength: int = 0) -> Any:
    return right(x, weights, min(minlength, 1))


def _through_float(right: Callable[..., Any], tensors: list[torch.Tensor], dim: int = 0) -> Any:
    result = right(tensors, dim)
    return result.float().to(result.dtype) if result.dtype == torch.int64 else result


def _end_left_out(right: Callable[..., Any], start: Any, end: Any, step: Any = 1, **keywords: Any) -> Any:
    return right(start, end - step if end - start > 4 else end, step, **keywords)


def _cast_truncates(right: Callable[..., Any], x: torch.Tensor, **keywords: Any) -> Any:
    if keywords.get("dtype") == torch.bfloat16 and x.dtype == torch.float32:
        words = x.contiguous().view(torch.int32) & -65536
        x = torch.where(x.isfinite(), words.view(torch.float32), x)
    return right(x, **keywords)


def _cast_flushes(right: Callable[..., Any], x: torch.Tensor, **keywords: Any) -> Any:
    target = keywords.get("dtype")
    if target in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float16) and x.dtype in (torch.float32, torch.float64):
        x = torch.where(x.abs() < torch.finfo(target).tiny, torch.zeros_like(x), x)
    return right(x, **keywords)


def _cast_rounds(right: Callable[..., Any], x: torch.Tensor, **keywords: Any) -> Any:
    target = keywords.get("dtype")
    if (
        target is not None
        and not (target.is_floating_point or target.is_complex or target is torch.bool)
        and x.dtype == torch.float32
    ):
        x = x.round()
    return right(x, **keywords)


def _apply_missing_dtype_widened(patches: Patches) -> None:
    from fakes import dispatch
    from fakes.machine import current_machine

    original = dispatch._run_factory

    def run(plan: Any, args: Any, kwargs: Any) -> Any:
        if kwargs and kwargs.get("dtype") is not None and kwargs["dtype"] not in current_machine().persona.dtypes:
            kwargs = {**kwargs, "dtype": torch.float32}
        return original(plan, args, kwargs)

    patches.set(dispatch, "_run_factory", run)
    patches.set(dispatch, "_plans", {})


def _sum_stops(right: Callable[..., Any], x: torch.Tensor, **keywords: Any) -> Any:
    return right(x.flatten()[:_BOUND], **keywords)


def _index_wraps(right: Callable[..., Any], x: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    return right(x, dim, index % _BOUND)


def _copy_stops(right: Callable[..., Any], destination: torch.Tensor, source: torch.Tensor, *rest: Any) -> Any:
    if destination.numel() > _BOUND and destination.dim() == 1:
        right(destination[:_BOUND], source[:_BOUND], *rest)
        return destination
    return right(destination, source, *rest)


def _narrow_sum(right: Callable[..., Any], x: torch.Tensor, **keywords: Any) -> Any:
    if x.dtype not in (torch.bfloat16, torch.float16):
        return right(x, **keywords)
    total = x.new_zeros(())
    flat = x.flatten()
    for start in range(0, len(flat), 4):
        total = total + flat[start : start + 4].sum()
    return total


def _narrow_product(right: Callable[..., Any], a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dtype not in (torch.bfloat16, torch.float16) or a.shape[1] < 32:
        return right(a, b)
    total = right(a[:, :16], b[:16])
    for start in range(16, a.shape[1], 16):
        total = total + right(a[:, start : start + 16], b[start : start + 16])
    return total


def _any_order(
    right: Callable[..., Any], x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, **keywords: Any
) -> Any:
    order = list(range(len(index)))
    random.shuffle(order)
    return right(x, dim, index[order], source[order], **keywords)


def _apply_claims_determinism(patches: Patches) -> None:
    from harness.accelerator.capabilities import Capability, CapabilityEvidence
    from harness.accelerator.musa import MUSAAccelerator

    claim = {Capability.DETERMINISTIC: CapabilityEvidence(True, "the adapter claims it")}
    patches.set(MUSAAccelerator, "declarations", {**MUSAAccelerator.declarations, **claim})
    _kernels(aten.index_add_.default, aten.index_add.default, wrong=_any_order)(patches)


def _fault(name: str, clauses: tuple[str, ...], summary: str, apply: Apply) -> Fault:
    return Fault(f"ops-{name}", clauses, summary, "derived", apply)


FAULTS: tuple[Fault, ...] = (
    _fault(
        "cumsum-in-doubles", ("OPS-1",), "`cumsum` of int64 adds in float64.", _kernels(aten.cumsum.default, wrong=_sum_in_floats)
    ),
    _fault(
        "scatter-add-last-wins",
        ("OPS-1",),
        "`scatter_add` keeps one of several values for an element.",
        _kernels(aten.scatter_add.default, wrong=_last_wins),
    ),
    _fault(
        "remainder-towards-zero",
        ("OPS-1",),
        "`remainder` has the dividend's sign.",
        _kernels(aten.remainder.Scalar, aten.remainder.Tensor, wrong=_towards_zero),
    ),
    _fault(
        "topk-always-largest", ("OPS-1",), "`topk` ignores `largest=False`.", _kernels(aten.topk.default, wrong=_always_largest)
    ),
    _fault(
        "topk-one-index-twice",
        ("OPS-1",),
        "`topk` gives one index for several values.",
        _kernels(aten.topk.default, wrong=_one_index_twice),
    ),
    _fault(
        "sort-unstable", ("OPS-1",), "A stable sort reverses equal values.", _kernels(aten.sort.stable, wrong=_ties_from_the_end)
    ),
    _fault(
        "index-select-ignores-strides",
        ("OPS-1",),
        "`index_select` takes a strided tensor for a contiguous one.",
        _kernels(aten.index_select.default, wrong=_memory_order),
    ),
    _fault("gather-in-32-bits", ("OPS-1",), "`gather` moves int64 as int32.", _kernels(aten.gather.default, wrong=_as_short)),
    _fault(
        "bincount-without-minimum",
        ("OPS-1",),
        "`bincount` ignores `minlength`.",
        _kernels(aten.bincount.default, wrong=_no_minimum),
    ),
    _fault(
        "cat-through-float32", ("OPS-1",), "`cat` of int64 goes through float32.", _kernels(aten.cat.default, wrong=_through_float)
    ),
    _fault(
        "cast-truncates",
        ("OPS-2",),
        "float32 is cut off to bfloat16, not rounded.",
        _kernels(aten._to_copy.default, wrong=_cast_truncates),
    ),
    _fault(
        "cast-flushes", ("OPS-2",), "Casts to narrow dtypes flush subnormals.", _kernels(aten._to_copy.default, wrong=_cast_flushes)
    ),
    _fault(
        "cast-rounds", ("OPS-2",), "A cast to integers rounds to the nearest.", _kernels(aten._to_copy.default, wrong=_cast_rounds)
    ),
    _fault(
        "missing-dtype-widened", ("OPS-2",), "A cast to a dtype that the device lacks gives float32.", _apply_missing_dtype_widened
    ),
    _fault(
        "sum-stops-at-the-bound",
        ("OPS-3",),
        "A sum leaves out elements past the bound.",
        _kernels(aten.sum.default, wrong=_sum_stops),
    ),
    _fault(
        "index-wraps-at-the-bound",
        ("OPS-3",),
        "An index past the bound wraps.",
        _kernels(aten.index_select.default, wrong=_index_wraps),
    ),
    _fault(
        "copy-stops-at-the-bound",
        ("OPS-3",),
        "A copy leaves out elements past the bound.",
        _kernels(aten.copy_.default, wrong=_copy_stops),
    ),
    _fault(
        "sums-in-half",
        ("OPS-4",),
        "Sums of bfloat16 and float16 add in the same dtype.",
        _kernels(aten.sum.default, wrong=_narrow_sum),
    ),
    _fault(
        "products-in-half",
        ("OPS-4",),
        "Matrix products add in bfloat16 and float16.",
        _kernels(aten.mm.default, wrong=_narrow_product),
    ),
    _fault(
        "determinism-claimed",
        ("OPS-5",),
        "Deterministic algorithms are claimed, and `index_add_` adds in any order.",
        _apply_claims_determinism,
    ),
)
