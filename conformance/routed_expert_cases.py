"""What the routed-experts checks draw, and what is due for it.

For: strategies of layouts and sequence lengths, routed experts whose rows carry their own identity, expected outputs from the slow model,
and the bytes that operators move. Not for: the checks (`test_routed_experts_alignment.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.aligners import Aligner
from conformance.models.routed_experts import LayoutSizes, Place, places_of_rank
from harness.routed_experts.layout import ParallelLayout

SIGNED_AND_SMALL = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Integer dtypes that every device may be expected to compute with."""
WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclasses.dataclass(frozen=True)
class Case:
    """One batch for one layout, all ranks of it."""

    sizes: LayoutSizes
    lengths: tuple[int, ...]
    layers: int
    top_k: int
    num_experts: int

    def ranks(self) -> Iterator[tuple[int, int]]:
        """(context-parallel rank, tensor-parallel rank) of every rank."""
        for context_parallel_rank in range(self.sizes.context_parallel_size):
            for tensor_parallel_rank in range(self.sizes.tensor_parallel_size):
                yield context_parallel_rank, tensor_parallel_rank

    def to_picture(self) -> dict[str, object]:
        """What a report draws of a failing case, by kind."""
        sizes = dataclasses.asdict(self.sizes)
        sizes.pop("expert_parallel_size", None)
        return {"layout": {**sizes, "sequences": list(self.lengths)}}

    def layout(self, rank: tuple[int, int]) -> ParallelLayout:
        """The layout as a rank sees it."""
        return ParallelLayout(**dataclasses.asdict(self.sizes), context_parallel_rank=rank[0], tensor_parallel_rank=rank[1])

    def places(self, rank: tuple[int, int]) -> list[Place]:
        """What the model says that a rank holds."""
        return places_of_rank(self.sizes, self.lengths, context_parallel_rank=rank[0], tensor_parallel_rank=rank[1])

    def holder(self, sequence: int, position: int) -> tuple[int, int]:
        """The first rank that holds a token."""
        for rank in self.ranks():
            if any((place.sequence, place.position) == (sequence, position) for place in self.places(rank)):
                return rank
        raise LookupError(f"nobody holds sequence {sequence}, position {position} of {self}")

    def tokens(self, device: torch.device | None = None) -> list[torch.Tensor]:
        """Token ids; token p of sequence s is 1000·s + p + 1."""
        return [torch.arange(length, device=device) + 1000 * sequence + 1 for sequence, length in enumerate(self.lengths)]

    def labels(self, dtype: torch.dtype = torch.int32) -> list[torch.Tensor]:
        """Routed experts in which each row carries its own identity, as the digits of its number.

        The first two choices are equal, which no padding row's are, so a row can be told from padding. Needs `top_k` ≥ 2 and
        `num_experts` ≥ 2.
        """
        weights = [
            self.num_experts ** (layer * (self.top_k - 1) + choice)
            for layer in range(self.layers)
            for choice in range(self.top_k - 1)
        ]
        experts = []
        first = 0
        for length in self.lengths:
            rows = range(first, first + length - 1)
            digits = torch.tensor([[row // weight % self.num_experts for weight in weights] for row in rows], dtype=torch.int64)
            digits = digits.reshape(length - 1, self.layers, self.top_k - 1)
            experts.append(torch.cat([digits[..., :1], digits], dim=2).to(dtype))
            first += length - 1
        return experts

    def due(self, rank: tuple[int, int], routed_experts: Sequence[torch.Tensor]) -> torch.Tensor:
        """What a rank must get with `sequential` padding: int64 on the CPU."""
        places = self.places(rank)
        numbers = 1 + max((place.padding for place in places if place.padding is not None), default=-1)
        padding = torch.arange(numbers * self.layers * self.top_k) % self.num_experts
        known = torch.cat(
            [padding.reshape(numbers, self.layers, self.top_k)] + [experts.cpu().to(torch.int64) for experts in routed_experts]
        )
        starts = [numbers + sum(self.lengths[:sequence]) - sequence for sequence in range(len(self.lengths))]
        rows = []
        for place in places:
            if place.padding is not None:
                rows.append(place.padding)
            elif place.sequence is not None and place.position is not None:
                rows.append(starts[place.sequence] + place.position)
        return known[torch.tensor(rows, dtype=torch.int64)]

    def aligned(
        self, aligner: Aligner, rank: tuple[int, int], routed_experts: Sequence[torch.Tensor], *, padding: str = "sequential"
    ) -> torch.Tensor:
        """What the aligner under test gives a rank."""
        tokens = self.tokens(routed_experts[0].device if routed_experts else None)
        return aligner(routed_experts, tokens, layout=self.layout(rank), num_experts=self.num_experts, padding=padding)


_SIZES = st.one_of(st.sampled_from([1, 2, 4, 8]), st.integers(1, 8))
_MULTIPLIERS = st.one_of(st.sampled_from([1, 2, 3]), st.integers(1, 8), st.integers(1, 128))


@st.composite
def layout_sizes(draw: st.DrawFn) -> LayoutSizes:
    """Sizes 1 to 8, multipliers 1 to 128, with and without sequence parallelism and allgather."""
    return LayoutSizes(
        tensor_parallel_size=draw(_SIZES),
        context_parallel_size=draw(_SIZES),
        data_pad_size_multiplier=draw(_MULTIPLIERS),
        sequence_parallel=draw(st.booleans()),
        allgather_context_parallel=draw(st.booleans()),
        expert_parallel_size=draw(st.integers(1, 8)),
    )


@st.composite
def cases(draw: st.DrawFn, *, least_sequences: int = 1) -> Case:
    """A layout and up to four unequal sequences, most of them around the lengths at which chunks come out empty or whole."""
    sizes = draw(layout_sizes())
    length = st.one_of(st.integers(1, 4 * sizes.context_parallel_size), st.integers(1, 150))
    lengths = tuple(draw(st.lists(length, min_size=least_sequences, max_size=4)))
    top_k = draw(st.integers(2, 4))
    num_experts = draw(st.one_of(st.integers(top_k, 12), st.sampled_from([64, 128])))
    layers = draw(st.integers(1, 3))
    while num_experts ** (layers * (top_k - 1)) < sum(lengths):
        layers += 1  # enough digits for every row's number
    return Case(sizes, lengths, layers, top_k, num_experts)


def ranks_of(case: Case) -> st.SearchStrategy[tuple[int, int]]:
    """One rank of a case's layout."""
    return st.sampled_from(list(case.ranks()))


def is_padding(place: Place) -> bool:
    """Whether a place has no row of routed experts: a sequence's last token included."""
    return place.padding is not None


class Traffic(TorchDispatchMode):
    """Adds up the bytes of all tensors that operators read or write, views aside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        is_view = any(argument.alias_info is not None and not argument.alias_info.is_write for argument in func._schema.arguments)
        if not is_view:
            tensors = torch.utils._pytree.tree_leaves((args, kwargs, result))
            self.bytes += sum(leaf.numel() * leaf.element_size() for leaf in tensors if isinstance(leaf, torch.Tensor))
        return result
