"""Host tensors whose every bit matters, and the copies that must keep them (DEV-7).

For: NaN payloads, signed zeros, subnormals, empty and strided tensors of any dtype, as values that print as code. Not for:
arithmetic; a computation may change a NaN's payload, a copy may not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from conformance.programs.printing import PrintsAsCode

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FLOATS_OF_COMPLEX = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
# Fields of the IEEE-like formats: (exponent bits, fraction bits).
_FLOAT_FIELDS = {
    torch.float64: (11, 52),
    torch.float32: (8, 23),
    torch.float16: (5, 10),
    torch.bfloat16: (8, 7),
    torch.float8_e5m2: (5, 2),
    torch.float8_e4m3fn: (4, 3),
}
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.complex128,
)
"""Every dtype that is tried; a backend has those of which it can make an empty tensor."""
NEEDED_DTYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32)
"""Those that a backend without them could not run a model with."""
LAYOUTS = ("contiguous", "transposed", "every second row", "from the second row", "expanded", "last column")


@dataclass(frozen=True, repr=False)
class BitPattern(PrintsAsCode):
    """A host tensor by its bits. `bits` fill a `rows` × `columns` matrix in turn; `layout` then views it."""

    dtype: torch.dtype
    rows: int
    columns: int
    bits: tuple[int, ...]
    layout: str

    def __repr__(self) -> str:
        words = ", ".join(f"{word:#x}" for word in self.bits)
        return f"{self.dtype}[{self.rows}, {self.columns}] of bits [{words}], {self.layout}"

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The tensor, and an integer tensor of the same shape with its bits (one more dimension of two for complex)."""
        element = _FLOATS_OF_COMPLEX.get(self.dtype, self.dtype)
        parts = 2 if element is not self.dtype else 1
        size = element.itemsize
        total = self.rows * self.columns * parts
        words = [_wrapped(self.bits[position % len(self.bits)], size) for position in range(total)]
        matrix = torch.tensor(words, dtype=_INTEGERS[size]).reshape(self.rows, self.columns, parts)
        if self.dtype is torch.bool:
            matrix = matrix & 1
        viewed = _lay_out(matrix, self.layout)
        if parts == 2:
            return torch.view_as_complex(viewed.view(element)), viewed
        return viewed.squeeze(-1).view(element), viewed.squeeze(-1)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of a host tensor as integers, with the shape of `BitPattern.tensors`."""
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    return tensor.contiguous().view(_INTEGERS[tensor.dtype.itemsize])


def _lay_out(matrix: torch.Tensor, layout: str) -> torch.Tensor:
    views = {
        "contiguous": lambda: matrix,
        "transposed": lambda: matrix.transpose(0, 1),
        "every second row": lambda: matrix[::2],
        "from the second row": lambda: matrix[1:],
        "expanded": lambda: matrix[:1].expand(3 * min(1, len(matrix)), *matrix.shape[1:]),
        "last column": lambda: matrix[:, -1:],
    }
    return views[layout]()


def _wrapped(word: int, size: int) -> int:
    """The word as the integer dtype of that size holds it."""
    bits = 8 * size
    word &= (1 << bits) - 1
    return word if size == 1 or word < 1 << (bits - 1) else word - (1 << bits)


def _words(dtype: torch.dtype) -> st.SearchStrategy[int]:
    element = _FLOATS_OF_COMPLEX.get(dtype, dtype)
    size = element.itemsize
    anything = st.integers(0, (1 << 8 * size) - 1)
    if element not in _FLOAT_FIELDS:
        return anything
    exponent, fraction = _FLOAT_FIELDS[element]
    sign = 1 << (exponent + fraction)
    infinity = ((1 << exponent) - 1) << fraction
    quiet = 1 << (fraction - 1)
    telling = [
        0,
        sign,
        infinity,
        sign | infinity,
        1,
        sign | 1,
        infinity | quiet,
        infinity | quiet | 1,
        sign | infinity | 1,
        infinity | 1,
    ]
    return st.one_of(st.sampled_from(telling), st.sampled_from(telling), st.sampled_from(telling), anything)


_sizes = st.integers(1, 4) | st.integers(2, 4) | st.integers(0, 4)


@st.composite
def bit_patterns(draw: st.DrawFn) -> BitPattern:
    """Tensors of every dtype, up to 4 × 4, with words that tell copies from conversions."""
    # Twice as many floats, where copies and conversions differ.
    dtype = draw(st.sampled_from((*DTYPES, *_FLOAT_FIELDS)))
    words = draw(st.lists(_words(dtype), min_size=1, max_size=10))
    return BitPattern(dtype, draw(_sizes), draw(_sizes), tuple(words), draw(st.sampled_from(LAYOUTS)))
