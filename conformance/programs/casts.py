"""Casts of values that the target can hold (OPS-2), as values that print as code.

For: every pair of dtypes, with values at and between what each can represent. Not for: values out of range, whose casts differ
between devices by PyTorch's own word, nor a NaN's payload."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from conformance.programs.bit_patterns import DTYPES, bits_of
from conformance.programs.printing import PrintsAsCode

_TELLING = (
    *(0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 1 / 3, 3.0, 7.0, 9.0, 17.0, 127.0, 128.0, -128.0, 255.0, 256.0, 257.0),
    *(240.0, 448.0, 57344.0, 65504.0, 65519.0, 2.0**24 + 1, 2.0**31 - 1, 2.0**53, 3.3e38, -3.3e38, 1e-8, 6e-8, 1e-40, 2.0**-149),
    *(-0.0, 1.0009765625, 1.00390625, 1.001953125, 2.0**-9, 2.0**-16, math.inf, -math.inf, math.nan),
)


@dataclass(frozen=True, repr=False)
class CastInputs(PrintsAsCode):
    """The `values` that `source` can hold, to be cast to every dtype."""

    source: torch.dtype
    values: tuple[float, ...]

    def __repr__(self) -> str:
        return f"{list(self.values)} in {self.source}"

    def targets(self) -> list[torch.dtype]:
        """What the source can be cast to: a complex number only to complex ones."""
        return [target for target in DTYPES if target.is_complex or not self.source.is_complex]

    def host(self, target: torch.dtype) -> torch.Tensor:
        """The values on the CPU in the source's dtype, those left out that are out of the source's or the target's range."""
        exact = torch.tensor([value for value in self.values if _fits(value, self.source)], dtype=torch.float64).to(self.source)
        wide = exact.to(torch.complex128).real.tolist()
        kept = [position for position, value in enumerate(wide) if _fits(value, target)]
        # Indexing is not there for every narrow dtype.
        bits = bits_of(exact)[kept]
        return torch.view_as_complex(bits.view(_element(self.source))) if self.source.is_complex else bits.view(self.source)


def same_numbers(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two host tensors of one dtype are equal bit for bit, NaNs apart, which only have to be NaN both."""
    wide = [tensor.to(torch.complex128) for tensor in (first, second)] if first.is_floating_point() else []
    if wide and torch.equal(wide[0].isnan(), wide[1].isnan()):
        first, second = (bits_of(tensor)[~wide[0].isnan()] for tensor in (first, second))
        return torch.equal(first, second)
    return torch.equal(bits_of(first), bits_of(second))


def _element(dtype: torch.dtype) -> torch.dtype:
    return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)


def _fits(value: float, dtype: torch.dtype) -> bool:
    if dtype is torch.bool:
        return not math.isnan(value)
    element = _element(dtype)
    if not element.is_floating_point:
        limits = torch.iinfo(dtype)
        return math.isfinite(value) and limits.min <= int(value) <= limits.max and value < 2.0**63
    if math.isnan(value):
        return not dtype.is_complex
    if math.isinf(value):
        return element.itemsize > 1 and not dtype.is_complex
    return abs(value) <= torch.finfo(element).max


cast_inputs = st.builds(
    lambda source, values: CastInputs(source, tuple(values)),
    # Wide floats more often: from them there is most to round.
    st.sampled_from((torch.float32, torch.float64, *DTYPES, torch.float32, torch.float64)),
    st.lists(st.sampled_from(_TELLING), min_size=24, max_size=40),
)
