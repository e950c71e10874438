"""Which rows a rank holds, in plain integers.

For: the training layout of a packed micro-batch under context, tensor and sequence parallelism: the runs of source and padding rows
of one rank, in order, the inverse (who holds a token, and where), and token ids sliced the same way. It builds no tensor except in
`slice_tokens`, so it answers for any number of ranks. Not for: moving expert ids (`alignment.py`) or numbering padding
(`padding.py`).

A sequence of n tokens has n − 1 rows of routed experts, since the last token is never routed in a rollout: position n − 1 is a
padding row, as are the positions behind it that make the sequence divisible, and the rows behind the last sequence.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import torch

from harness.errors import RoutedExpertsError


class RowKind(enum.Enum):
    """Where a local row comes from."""

    SOURCE = "source"
    """A row of routed experts."""
    SEQUENCE_PADDING = "sequence padding"
    """A sequence's last token, which has no routed experts, or a row behind it that makes the sequence divisible (zigzag only)."""
    TAIL_PADDING = "tail padding"
    """A row behind the last sequence that makes the length divisible."""


class RowRun(NamedTuple):
    """Consecutive local rows of one kind and, but for the tail, of one sequence."""

    local_row: int
    """The first of them, counted from 0 in this rank's output."""
    length: int
    """How many rows, at least 1."""
    kind: RowKind
    sequence: int | None
    """The sequence they belong to; None for the tail."""
    first: int
    """The first row's position in its sequence (for source rows, the row of routed experts); for the tail, its number in it."""


class TokenLocation(NamedTuple):
    """Who holds a token."""

    context_parallel_rank: int
    tensor_parallel_rank: int | None
    """None without sequence parallelism: every tensor-parallel rank holds it, at the same local row."""
    local_row: int


Holding: TypeAlias = "tuple[int, int, int, int, int]"
"""(sequence, first position, count, second first position, second count): what a rank holds of one padded sequence, in local order. It is
one run of positions, or the two that zigzag gives; a count may be 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelLayout:
    """Sizes and ranks of one rank, and what follows from them (RXA-1 to RXA-5).

    Zigzag (context-parallel size C > 1, no allgather): each sequence is padded to a multiple of 2C and cut into 2C chunks; rank r
    holds chunks r and 2C − 1 − r. Otherwise the sequences are joined; with allgather the whole is padded and cut into C equal
    chunks. A rank's length is a multiple of `padding_multiple`; under sequence parallelism each tensor-parallel rank then holds an
    equal, consecutive part. Sequence lengths are always numbers of tokens, at least 1.

    Raises:
        RoutedExpertsError: a size below 1, a rank outside its size, or a value that is not an integer.
    """

    tensor_parallel_size: int
    tensor_parallel_rank: int
    context_parallel_size: int
    context_parallel_rank: int
    expert_parallel_size: int = 1
    """Over how many ranks the experts are split; only the padding policy `spread` looks at it."""
    data_pad_size_multiplier: int
    sequence_parallel: bool
    allgather_context_parallel: bool

    def __post_init__(self) -> None:
        for name in ("tensor_parallel_size", "context_parallel_size", "expert_parallel_size", "data_pad_size_multiplier"):
            self._set_integer(name)
            if getattr(self, name) < 1:
                raise RoutedExpertsError(f"{name} is {getattr(self, name)}; a size is at least 1")
        for name in ("tensor_parallel", "context_parallel"):
            self._set_integer(f"{name}_rank")
            rank, size = getattr(self, f"{name}_rank"), getattr(self, f"{name}_size")
            if not 0 <= rank < size:
                raise RoutedExpertsError(f"{name}_rank is {rank}, but {name}_size is {size}; legal ranks: 0 to {size - 1}")

    def _set_integer(self, name: str) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise RoutedExpertsError(f"{name} is {value!r} ({type(value).__name__}); it must be an integer")
        object.__setattr__(self, name, operator.index(value))

    # Ranks --------------------------------------------------------------------------------------------------------------------

    @property
    def zigzag(self) -> bool:
        """Whether each sequence is cut into 2C chunks of which a rank holds two."""
        return self.context_parallel_size > 1 and not self.allgather_context_parallel

    @property
    def padding_multiple(self) -> int:
        """What the length of a context-parallel rank's rows is a multiple of."""
        return self.tensor_parallel_size * self.data_pad_size_multiplier

    def of_rank(self, *, context_parallel_rank: int, tensor_parallel_rank: int) -> ParallelLayout:
        """The same layout as another rank sees it."""
        return dataclasses.replace(self, context_parallel_rank=context_parallel_rank, tensor_parallel_rank=tensor_parallel_rank)

    def all_ranks(self) -> Iterator[ParallelLayout]:
        """The layout of every rank, context-parallel rank by context-parallel rank."""
        for context_parallel_rank in range(self.context_parallel_size):
            for tensor_parallel_rank in range(self.tensor_parallel_size):
                yield self.of_rank(context_parallel_rank=context_parallel_rank, tensor_parallel_rank=tensor_parallel_rank)

    @property
    def most_padding_behind(self) -> int:
        """No sequence has more padding rows, its last token's included, than this."""
        return 2 * self.context_parallel_size if self.zigzag else 1

    # Lengths ------------------------------------------------------------------------------------------------------------------

    def chunk_length(self, sequence_length: int) -> int:
        """The length of each of a sequence's 2C chunks under zigzag."""
        return -(-sequence_length // (2 * self.context_parallel_size))

    def context_parallel_length(self, sequence_lengths: Sequence[int]) -> int:
        """How many rows each context-parallel rank holds before sequence parallelism divides them; the same on all ranks."""
        multiple = self.padding_multiple
        if self.zigzag:
            return -(-self._rows_before_tail(sequence_lengths) // multiple) * multiple
        size = self.context_parallel_size
        return -(-sum(sequence_lengths) // (size * multiple)) * multiple

    def local_length(self, sequence_lengths: Sequence[int]) -> int:
        """How many rows this rank holds; the same on all ranks (RXA-3)."""
        length = self.context_parallel_length(sequence_lengths)
        return length // self.tensor_parallel_size if self.sequence_parallel else length

    def longest_padding(self, sequence_lengths: Sequence[int]) -> int:
        """No rank holds more padding rows of one sequence together than this."""
        if not self.zigzag or not sequence_lengths:
            return 1
        return min(self.most_padding_behind, self.chunk_length(max(sequence_lengths)))

    def _rows_before_tail(self, sequence_lengths: Sequence[int]) -> int:
        """How many rows of a context-parallel rank belong to sequences under zigzag."""
        chunks = 2 * self.context_parallel_size
        return 2 * sum([-(-length // chunks) for length in sequence_lengths])

    def _window(self, sequence_lengths: Sequence[int]) -> tuple[int, int]:
        """The part of its context-parallel rank's rows that this rank holds, as (start, end)."""
        length = self.local_length(sequence_lengths)
        start = length * self.tensor_parallel_rank if self.sequence_parallel else 0
        return start, start + length

    # Rows ---------------------------------------------------------------------------------------------------------------------

    def runs(self, sequence_lengths: Sequence[int]) -> list[RowRun]:
        """This rank's rows in local order, without gaps, from row 0 to `local_length`.

        Raises:
            RoutedExpertsError: a sequence length below 1.
        """
        _check_lengths(sequence_lengths)
        runs: list[RowRun] = []
        end = 0
        for sequence, first, count, second, second_count in self.holdings(sequence_lengths):
            for start, length in ((first, count), (second, second_count)):
                sources = min(max(sequence_lengths[sequence] - 1 - start, 0), length)
                if sources:
                    runs.append(RowRun(end, sources, RowKind.SOURCE, sequence, start))
                if sources < length:
                    runs.append(RowRun(end + sources, length - sources, RowKind.SEQUENCE_PADDING, sequence, start + sources))
                end += length
        tail = self.local_length(sequence_lengths) - end
        if tail:
            runs.append(RowRun(end, tail, RowKind.TAIL_PADDING, None, self.first_tail_number(sequence_lengths, end)))
        return runs

    def holdings(self, sequence_lengths: Sequence[int]) -> list[Holding]:
        """This rank's rows but for the tail, in local order and without gaps from row 0 on, each sequence that has any once.

        The quick form of `runs`, for lengths of at least 1: source and padding rows are not told apart, and nothing is checked.
        """
        return self._zigzag_holdings(sequence_lengths) if self.zigzag else self._joined_holdings(sequence_lengths)

    def _zigzag_holdings(self, sequence_lengths: Sequence[int]) -> list[Holding]:
        window_start, window_end = self._window(sequence_lengths)
        chunks = 2 * self.context_parallel_size
        early, late = self.context_parallel_rank, chunks - 1 - self.context_parallel_rank
        holdings: list[Holding] = []
        row = 0
        for sequence, length in enumerate(sequence_lengths):
            chunk = -(-length // chunks)
            middle, end = row + chunk, row + 2 * chunk
            if row >= window_start and end <= window_end:
                holdings.append((sequence, early * chunk, chunk, late * chunk, chunk))
            elif end > window_start:
                if row >= window_end:
                    break
                first, second = max(row, window_start), max(middle, window_start)
                count, second_count = min(middle, window_end) - first, min(end, window_end) - second
                holdings.append(
                    (sequence, early * chunk + first - row, max(count, 0), late * chunk + second - middle, max(second_count, 0))
                )
            row = end
        return holdings

    def _joined_holdings(self, sequence_lengths: Sequence[int]) -> list[Holding]:
        """Without zigzag a rank's rows are a window of the joined sequences."""
        window_start, window_end = self._joined_window(sequence_lengths)
        holdings: list[Holding] = []
        row = 0
        for sequence, length in enumerate(sequence_lengths):
            if row + length > window_start:
                if row >= window_end:
                    break
                first, end = max(row, window_start), min(row + length, window_end)
                holdings.append((sequence, first - row, end - first, 0, 0))
            row += length
        return holdings

    def _joined_window(self, sequence_lengths: Sequence[int]) -> tuple[int, int]:
        start, end = self._window(sequence_lengths)
        before = self.context_parallel_rank * self.context_parallel_length(sequence_lengths)
        return before + start, before + end

    def first_tail_number(self, sequence_lengths: Sequence[int], local_row: int) -> int:
        """The number in the tail of the padding row at `local_row`: the tail is one per rank under zigzag, else one for all."""
        if self.zigzag:
            return self._window(sequence_lengths)[0] + local_row - self._rows_before_tail(sequence_lengths)
        return self._joined_window(sequence_lengths)[0] + local_row - sum(sequence_lengths)

    def padding_rows_before(self, sequence_lengths: Sequence[int]) -> int:
        """How many padding rows, the last tokens' included, precede this rank's first row.

        Rows are counted context-parallel rank by context-parallel rank, each in local order, so every rank numbers the padding rows
        of the whole layout alike and without communicating (RXA-4).
        """
        start, _ = self._window(sequence_lengths)
        before = self.context_parallel_rank * self.context_parallel_length(sequence_lengths)
        if not self.zigzag:
            return before + start - _sources_before(before + start, sequence_lengths)
        whole = dataclasses.replace(self, sequence_parallel=False)
        sources = 0
        for run in whole.runs(sequence_lengths) if start else ():
            if run.kind is RowKind.SOURCE:
                sources += max(0, min(start - run.local_row, run.length))
        for length in sequence_lengths:
            chunk = self.chunk_length(length)
            late = (2 * self.context_parallel_size - self.context_parallel_rank) * chunk
            sources += min(length - 1, self.context_parallel_rank * chunk) + max(0, length - 1 - late)
        return before + start - sources

    # The inverse --------------------------------------------------------------------------------------------------------------

    def locate(self, sequence_lengths: Sequence[int], sequence: int, position: int) -> TokenLocation:
        """Who holds token `position` of a sequence, and at which local row.

        Raises:
            RoutedExpertsError: there is no such sequence or token, or a sequence length is below 1.
        """
        _check_lengths(sequence_lengths)
        if not 0 <= sequence < len(sequence_lengths) or not 0 <= position < sequence_lengths[sequence]:
            raise RoutedExpertsError(
                f"no token at sequence {sequence}, position {position}; sequence lengths are {list(sequence_lengths)}"
            )
        if self.zigzag:
            chunk = self.chunk_length(sequence_lengths[sequence])
            index, offset = divmod(position, chunk)
            rank = min(index, 2 * self.context_parallel_size - 1 - index)
            before = self._rows_before_tail(sequence_lengths[:sequence])
            row = before + offset + (chunk if index >= self.context_parallel_size else 0)
        else:
            length = self.context_parallel_length(sequence_lengths)
            rank, row = divmod(sum(sequence_lengths[:sequence]) + position, length)
        if not self.sequence_parallel:
            return TokenLocation(rank, None, row)
        tensor_parallel_rank, row = divmod(row, self.local_length(sequence_lengths))
        return TokenLocation(rank, tensor_parallel_rank, row)

    def slice_tokens(self, tokens: Sequence[torch.Tensor], *, padding_token_id: int = 0) -> torch.Tensor:
        """This rank's token ids: `[local_length]`, of the tokens' dtype and device; padding positions hold `padding_token_id`.

        With it alignment can be checked by looking up, not by shape (RXA-1). Without a sequence: an empty int64 tensor on the CPU.

        Args:
            tokens: for each sequence a one-dimensional tensor of token ids, at least one.
        """
        if not tokens:
            return torch.empty(0, dtype=torch.int64)
        lengths = [len(ids) for ids in tokens]
        out = torch.full((self.local_length(lengths),), padding_token_id, dtype=tokens[0].dtype, device=tokens[0].device)
        row = 0
        for sequence, first, count, second, second_count in self.holdings(lengths):
            for start, length in ((first, count), (second, second_count)):
                ids = tokens[sequence][start : start + length]
                out[row : row + len(ids)] = ids
                row += length
        return out


def _check_lengths(sequence_lengths: Sequence[int]) -> None:
    if sequence_lengths and min(sequence_lengths) < 1:
        sequence = next(sequence for sequence, length in enumerate(sequence_lengths) if length < 1)
        raise RoutedExpertsError(f"sequence {sequence} has {sequence_lengths[sequence]} tokens; a sequence has at least 1")


def _sources_before(row: int, sequence_lengths: Sequence[int]) -> int:
    """How many rows of routed experts lie before a row of the joined sequences."""
    sources = start = 0
    for length in sequence_lengths:
        sources += min(max(row - start, 0), length - 1)
        start += length
    return sources
