"""A matrix of integers for every operator of OPS-1, over dtypes, shapes, layouts and edge values, as a value that prints as code.

For: the operators that routing and weight updates use, computed on a device and on the CPU. Not for: floating point, whose sums
may round in another order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from conformance.programs.printing import PrintsAsCode

LAYOUTS = ("contiguous", "transposed", "every second row", "from the second row", "expanded", "last column")


@dataclass(frozen=True, repr=False)
class OperatorCase(PrintsAsCode):
    """A matrix that `values` fill in turn, seen through `layout`; `numbers` are an operator's other arguments in turn."""

    dtype: torch.dtype
    rows: int
    columns: int
    values: tuple[int, ...]
    layout: str
    numbers: tuple[int, ...]

    def __repr__(self) -> str:
        shape = f"[{self.rows}, {self.columns}]"
        return f"{self.dtype}{shape} of {list(self.values)}, {self.layout}; numbers {list(self.numbers)}"

    def compute(self, operator: str, device: torch.device) -> list[torch.Tensor]:
        """An operator's results on the CPU, from inputs that were moved to `device` before anything else."""
        total = self.rows * self.columns
        words = [self.values[position % len(self.values)] for position in range(total)]
        base = torch.tensor(words, dtype=torch.int64).to(self.dtype).reshape(self.rows, self.columns).to(device)
        return [result.cpu() for result in OPERATORS[operator](_lay_out(base, self.layout), self.numbers)]


def _lay_out(matrix: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "transposed":
        return matrix.transpose(0, 1)
    if layout == "every second row":
        return matrix[::2]
    if layout == "from the second row":
        return matrix[1:]
    if layout == "expanded":
        return matrix[:1].expand(3 * min(1, len(matrix)), matrix.shape[1])
    return matrix[:, -1:] if layout == "last column" else matrix


Numbers = tuple[int, ...]
Results = list[torch.Tensor]


def _dimension(x: torch.Tensor, numbers: Numbers) -> int:
    return numbers[0] % x.dim()


def _indices(x: torch.Tensor, numbers: Numbers, count: int, size: int) -> torch.Tensor:
    """`count` indices below `size`, repeated ones among them; none where there is nothing to index."""
    if not size:
        count = 0
    return torch.tensor([numbers[position % len(numbers)] % max(size, 1) for position in range(count)], dtype=torch.int64).to(
        x.device
    )


def _arange(x: torch.Tensor, numbers: Numbers) -> Results:
    start, span, step = numbers[0] - 7, numbers[1] % 9, (numbers[2] % 3 + 1)
    base = 2**31 - 40 if numbers[3] % 2 and x.dtype == torch.int32 else (2**53 if numbers[3] % 2 else 0)
    return [
        torch.arange(start + base, start + base + span, step, dtype=x.dtype, device=x.device),
        torch.arange(start + span, start, -step, dtype=x.dtype, device=x.device),
        torch.arange(span, dtype=x.dtype, device=x.device),
    ]


def _gather(x: torch.Tensor, numbers: Numbers) -> Results:
    dimension = _dimension(x, numbers)
    index = _indices(x, numbers, x.numel(), x.shape[dimension]).reshape(x.shape)
    return [x.gather(dimension, index)]


def _scatter_add(x: torch.Tensor, numbers: Numbers) -> Results:
    dimension = _dimension(x, numbers)
    index = _indices(x, numbers, x.numel(), x.shape[dimension]).reshape(x.shape)
    return [x.clone().scatter_add(dimension, index, x), torch.zeros_like(x).scatter_add_(dimension, index, x)]


def _index_select(x: torch.Tensor, numbers: Numbers) -> Results:
    dimension = _dimension(x, numbers)
    return [x.index_select(dimension, _indices(x, numbers, numbers[0] % 6, x.shape[dimension]))]


def _topk(x: torch.Tensor, numbers: Numbers) -> Results:
    size = x.shape[-1]
    values, index = x.topk(numbers[0] % (size + 1), dim=-1, largest=bool(numbers[1] % 2))
    # Which of equal values is taken is free, so the indices are judged by what they lead to.
    ordered = index.sort(dim=-1).values
    repeated = (ordered[..., 1:] == ordered[..., :-1]).sum().reshape(1)
    return [values, x.gather(-1, index), repeated]


def _sort(x: torch.Tensor, numbers: Numbers) -> Results:
    dimension, descending = _dimension(x, numbers), bool(numbers[1] % 2)
    stable = torch.sort(x, dim=dimension, descending=descending, stable=True)
    plain = torch.sort(x, dim=dimension, descending=descending)
    return [stable.values, stable.indices, plain.values, x.gather(dimension, plain.indices)]


def _cat(x: torch.Tensor, numbers: Numbers) -> Results:
    dimension = _dimension(x, numbers)
    return [torch.cat([x, x.narrow(dimension, 0, x.shape[dimension] // 2), x.clone()], dim=dimension), torch.cat([x.flatten()] * 3)]


def _chunk(x: torch.Tensor, numbers: Numbers) -> Results:
    return [part.contiguous() for part in x.chunk(numbers[1] % 5 + 1, dim=_dimension(x, numbers))]


def _cumsum(x: torch.Tensor, numbers: Numbers) -> Results:
    dimension = _dimension(x, numbers)
    return [x.cumsum(dimension), x.cumsum(dimension, dtype=x.dtype)]


def _bincount(x: torch.Tensor, numbers: Numbers) -> Results:
    small = x.remainder(23).flatten()
    return [torch.bincount(small), torch.bincount(small, minlength=numbers[0] * 4)]


def _remainder(x: torch.Tensor, numbers: Numbers) -> Results:
    divisor = (-7, -3, 1, 2, 5, 1000)[numbers[0] % 6]
    divisors = torch.where(x.remainder(3) == 0, divisor, 4).to(x.dtype)
    return [x.remainder(divisor), torch.remainder(x, divisors), x % divisor]


OPERATORS: dict[str, Callable[[torch.Tensor, Numbers], Results]] = {
    "arange": _arange,
    "gather": _gather,
    "scatter_add": _scatter_add,
    "index_select": _index_select,
    "topk": _topk,
    "sort": _sort,
    "cat": _cat,
    "chunk": _chunk,
    "cumsum": _cumsum,
    "bincount": _bincount,
    "remainder": _remainder,
}

_VALUES = (0, 1, 2, 3, -1, 5, 127, -128, 2**24 + 1, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, -(2**53) - 1, 2**62 + 3, 2**63 - 1)
_NARROW = tuple(value for value in _VALUES if -(2**31) <= value < 2**31)


@st.composite
def operator_cases(draw: st.DrawFn) -> OperatorCase:
    """Matrices up to 6 x 6; int64 and int32, values that are not exact in float64 or float32 among them."""
    dtype = draw(st.sampled_from([torch.int64, torch.int32]))
    values = draw(st.lists(st.sampled_from(_VALUES if dtype == torch.int64 else _NARROW), min_size=1, max_size=8))
    rows, columns = draw(st.sampled_from([(3, 4), (1, 1), (2, 5), (6, 2), (5, 6), (0, 3), (3, 0), (1, 6), (6, 1)]))
    numbers = draw(st.lists(st.integers(0, 11), min_size=4, max_size=6))
    return OperatorCase(dtype, rows, columns, tuple(values), draw(st.sampled_from(LAYOUTS)), tuple(numbers))
