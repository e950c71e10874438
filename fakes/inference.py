"""The geometry of an operator's results, known before it has run.

For: queued operators, whose results have sizes, strides and dtype at once. Not for: their contents (`deferral.py`).

It depends on the operator, on the geometry of its tensors and on its other arguments, and is worked out once for each of these. Small
operators are tried on host tensors full of ones or zeros, so that the strides are exactly those of the run to come; large ones on
`meta`. Where every trial is refused the answer is None: the host waits, and the real run decides, so that a wrong call is refused
at once and in the kernel's own words. `meta` misses what only kernels check, so a large call is also tried with two elements along each
dimension (a dtype that the kernel does not take), and looked at for memory that it would write twice. Floating-point arguments do not
count (a learning rate changes at every step), except in the operators whose sizes depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fakes.operator_plan import OperatorPlan
from fakes.scheduling import simulated_time
from fakes.scheduling.host_mode import HostMode

_Tensor = torch.Tensor
_MOST_TRIED = 1 << 16
"""From so many elements on, `meta` is cheaper."""
_MOST_KEPT = 1 << 14
_SIZED_BY_FLOATS = ("arange", "range", "space", "upsample", "grid", "resize")


class Layout:
    """The geometry of one new tensor; `nbytes` is what its storage takes."""

    __slots__ = ("dtype", "is_contiguous", "nbytes", "size", "stride")

    def __init__(self, tensor: torch.Tensor) -> None:
        if tensor.layout != torch.strided or tensor.is_quantized:
            kind = "quantized ones" if tensor.is_quantized else tensor.layout
            raise NotImplementedError(f"a simulated device has strided tensors only, not {kind}")
        self.size = tuple(tensor.shape)
        self.stride = tensor.stride()
        self.dtype = tensor.dtype
        self.is_contiguous = tensor.is_contiguous()
        span = 0 if tensor.numel() == 0 else 1 + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))
        self.nbytes = span * tensor.itemsize


class Outcome:
    """What an operator gives: `results` is a tree of lists and tuples with a `Layout` for each new tensor and the value itself for
    anything else. `resized` are the layouts of the written arguments whose geometry changes, by place. `duration` is in simulated
    nanoseconds."""

    __slots__ = ("duration", "resized", "results")

    def __init__(self, results: Any, resized: dict[Any, Any], duration: int) -> None:
        self.results = results
        self.resized = resized
        self.duration = duration


_outcomes: dict[Any, Outcome | None] = {}


def outcome_of(plan: OperatorPlan, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Outcome | None:
    """What a call will give; None where that cannot be told without running it."""
    key: Any = (
        plan.operator,
        torch.get_default_dtype(),
        *[_key(plan, value) for value in args],
        *[(name, _key(plan, value)) for name, value in kwargs.items()],
    )
    try:
        return _outcomes[key]
    except KeyError:
        pass
    except TypeError:
        return _infer(plan, kernel, args, kwargs)
    if len(_outcomes) >= _MOST_KEPT:
        _outcomes.clear()
    outcome = _outcomes[key] = _infer(plan, kernel, args, kwargs)
    return outcome


def _key(plan: OperatorPlan, value: Any) -> Any:
    if isinstance(value, _Tensor):
        return value.shape, value.stride(), value.dtype
    kind = type(value)
    if kind is float:
        return value if any(part in plan.name for part in _SIZED_BY_FLOATS) else float
    if kind is list:
        return tuple([_key(plan, item) for item in value])
    if kind is bool or kind is int:
        # 1 and True are equal keys, and give different dtypes.
        return kind, value
    return value


def _infer(plan: OperatorPlan, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Outcome | None:
    elements = sum(tensor.numel() for tensor in _tensors([*args, *kwargs.values()]))
    makers: list[Callable[[torch.Tensor], torch.Tensor]] = [_zeros, _ones]
    if elements > _MOST_TRIED:
        if _is_refused_for_its_dtypes(kernel, args, kwargs) or _writes_twice(plan, args, kwargs):
            return None
        makers = [_on_meta]
    with HostMode():
        for make in makers:
            tried_args = [_replace(value, make) for value in args]
            tried_kwargs = {name: _replace(value, make) for name, value in kwargs.items()}
            if make is _on_meta and kwargs.get("device") is not None:
                tried_kwargs["device"] = torch.device("meta")
            try:
                results = kernel(*tried_args, **tried_kwargs)
            except Exception:  # noqa: BLE001 - tried in another way next, and at last by the real run
                continue
            return _outcome(plan, args, kwargs, tried_args, tried_kwargs, results)
    return None


def _is_refused_for_its_dtypes(kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    with HostMode():
        try:
            kernel(
                *[_replace(value, _shrunk) for value in args], **{name: _replace(value, _shrunk) for name, value in kwargs.items()}
            )
        except NotImplementedError:
            return True
        except Exception as error:  # noqa: BLE001 - a size that two elements do not stand for
            return "dtype" in str(error) or "type" in str(error).split()
    return False


def _writes_twice(plan: OperatorPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    written = [kwargs.get(place) if isinstance(place, str) else args[place] for place in plan.mutated]
    return any(0 in tensor.stride() and tensor.numel() > 1 for tensor in _tensors(written))


def _outcome(
    plan: OperatorPlan, args: Sequence[Any], kwargs: dict[str, Any], tried_args: Any, tried_kwargs: Any, results: Any
) -> Outcome:
    resized: dict[Any, Any] = {}
    if plan.reshapes:
        for place in plan.mutated:
            before: Any = kwargs.get(place) if isinstance(place, str) else args[place]
            after = tried_kwargs.get(place) if isinstance(place, str) else tried_args[place]
            if isinstance(after, _Tensor) and (after.shape != before.shape or after.stride() != before.stride()):
                resized[place] = Layout(after)
    nbytes = sum(tensor.numel() * tensor.itemsize for tensor in _tensors([*args, *kwargs.values(), results]))
    returns_written = len(plan.returns) == 1 and plan.returns[0] is not None
    return Outcome(None if returns_written else _layouts(results), resized, simulated_time.of_kernel(nbytes))


def _layouts(value: Any) -> Any:
    if isinstance(value, _Tensor):
        return Layout(value)
    if isinstance(value, list | tuple):
        return type(value)([_layouts(item) for item in value])
    return value


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, _Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def _replace(value: Any, make: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, _Tensor):
        return make(value)
    if isinstance(value, list):
        return [_replace(item, make) for item in value]
    return value


def _zeros(tensor: torch.Tensor) -> torch.Tensor:
    return _filled(tensor, 0)


def _ones(tensor: torch.Tensor) -> torch.Tensor:
    return _filled(tensor, 1)


def _filled(tensor: torch.Tensor, value: float) -> torch.Tensor:
    # Lazy conjugation does not change what a result looks like.
    return torch.ops.aten.empty_strided.default(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu").fill_(value)  # type: ignore[no-any-return]


def _shrunk(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.zeros.default([min(extent, 2) for extent in tensor.shape], dtype=tensor.dtype, device="cpu")  # type: ignore[no-any-return]


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.empty_strided.default(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")  # type: ignore[no-any-return]
