"""Expert ids for the rows that no rollout routed.

For: the two numberings of padding rows, written in closed form straight into the rows they fill. Not for: which rows are padding
(`layout.py`).

Every padding row has `top_k` distinct ids in `[0, num_experts)` (RXA-4). Values are computed in int64 and reduced before they are
stored, so no dtype that can hold `num_experts − 1` overflows (RXA-7).
"""

from __future__ import annotations

import math
from typing import Protocol

import torch

_BLOCKS = (16, 4, 1)
"""Rows of the views of which runs are made where all padding rows are alike."""
_MOST_ALIKE = 128
"""A longer tail of such rows is written in place."""
_BLOCK_ROWS = 256
"""Rows of `spread` computed at a time: bounds the memory that the computation takes beside the output."""


def write_sequential(rows: torch.Tensor, *, first: int, num_experts: int) -> None:
    """Fill consecutive padding rows with the seed's numbering: element i of a group of rows holds i modulo `num_experts`.

    Args:
        rows: contiguous `[rows, layers, top_k]`, any integer dtype; overwritten.
        first: the number in its group of the first of these rows.
        num_experts: at least `top_k`.
    """
    count, layers, top_k = rows.shape
    total = count * layers * top_k
    if not total:
        return
    phase = first * layers * top_k % num_experts
    length = min(num_experts, total)
    cycle = torch.arange(phase, phase + length, device=rows.device)
    if phase + length > num_experts:
        cycle.remainder_(num_experts)
    cycle = cycle.to(rows.dtype)
    whole, rest = divmod(total, length)
    if not rest:
        rows.view(whole, length).copy_(cycle)
        return
    flat = rows.view(-1)
    flat[:-rest].view(whole, length).copy_(cycle)
    flat[-rest:].copy_(cycle[:rest])


def write_spread(rows: torch.Tensor, *, first: int, num_experts: int, expert_parallel_size: int) -> None:
    """Fill consecutive padding rows so that in each layer the load of the expert-parallel ranks differs by at most one.

    That holds for any consecutive rows of the numbering, hence on each rank and over all ranks. Where `expert_parallel_size` does
    not divide `num_experts`, ranks own one expert more or less (`expert_parallel_range`), and a `top_k` beyond what the small ranks
    own adds the remainder that no choice avoids.

    Args:
        rows: `[rows, layers, top_k]`, any integer dtype; overwritten.
        first: the number of the first of them among all padding rows of the layout (`ParallelLayout.padding_rows_before`).
        num_experts: at least `top_k`.
        expert_parallel_size: at least 1.
    """
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        numbers = torch.arange(first + start, first + start + len(block)).unsqueeze(1)
        experts = _spread_experts(numbers, rows.size(2), num_experts, expert_parallel_size).to(rows.dtype)
        block.copy_(experts.to(rows.device).unsqueeze(1).expand_as(block))


class Numbering(Protocol):
    """How the padding of one rank is numbered: rows behind sequences from a table that is shared by all, the tail in place."""

    period: int
    """After so many rows the numbering comes round; the last token's row, where it is a group of its own, is not counted."""

    def table_row(self, behind: int, padded: int) -> int:
        """Where in the table a run of padding begins.

        `behind` is its first row's distance from the last token, so 0 is the last token's row; a run in the tail counts as if it began
        behind a last token. `padded` is how many padding rows precede it on this rank.
        """

    def table_rows(self, rows: int, most_behind: int, longest: int) -> int:
        """How long the table must be for a rank of so many rows, where no sequence has more padding rows than `most_behind`, and no
        more than `longest` of them lie together."""

    def table(self, like: torch.Tensor, count: int) -> torch.Tensor:
        """The first `count` rows of the table `[count, layers, top_k]`, in the dtype and on the device of `like`."""

    def write_tail(self, rows: torch.Tensor, number: int, padded: int) -> None:
        """Fill the tail, whose first row has this number in it, and is preceded by `padded` padding rows on this rank."""


class PaddingPieces:
    """Padding rows behind one rank's sequences, as views of one small table, for a concatenation.

    Args:
        numbering: how the rows are numbered.
        like: the rows that they will be part of, `[rows, layers, top_k]`.
        most_behind: no sequence has more padding rows.
        longest: no more of them lie together on a rank.
    """

    def __init__(self, numbering: Numbering, like: torch.Tensor, most_behind: int, longest: int) -> None:
        self.count = 0
        """How many rows have been asked for."""
        self._numbering = numbering
        self._like = like
        self._alike = numbering.period == 1
        self._rows = _BLOCKS[0] if self._alike else numbering.table_rows(len(like), most_behind, longest)
        self._views: dict[tuple[int, int], torch.Tensor] = {}
        self._blocks: list[list[torch.Tensor]] = []

    def holds(self, distance: int, count: int) -> bool:
        """Whether the tail is short enough to be taken from the table, as a run behind a last token."""
        if self._alike:
            return count <= _MOST_ALIKE
        return self._numbering.table_row(distance, self.count) + count <= self._rows

    def behind(self, distance: int, count: int) -> list[torch.Tensor]:
        """The rows of a run of which the first is `distance` behind a last token's row; those before it (distance < 0) are left out."""
        if distance < 0:
            count += distance
            distance = 0
        self.count += count
        if not self._alike:
            return [self._view(self._numbering.table_row(distance, self.count - count), count)]
        # A view costs as much as copying several rows, so the same few serve all runs.
        if not self._blocks:
            self._blocks = [[self._view(0, rows)] for rows in _BLOCKS]
        large, small, one = self._blocks
        return large * (count >> 4) + small * (count >> 2 & 3) + one * (count & 3)

    def _view(self, row: int, count: int) -> torch.Tensor:
        view = self._views.get((row, count))
        if view is None:
            if not self._views:
                self._table = self._numbering.table(self._like, self._rows)
            view = self._views[row, count] = self._table[row : row + count]
        return view


class SequentialNumbering:
    """The seed's numbering: it starts again with each group, and the last token's row is a group of its own."""

    def __init__(self, layers: int, top_k: int, num_experts: int) -> None:
        self._num_experts = num_experts
        # The numbering comes round when a row starts with expert 0 again.
        self.period = num_experts // math.gcd(num_experts, layers * top_k)

    def table_row(self, behind: int, padded: int) -> int:  # noqa: ARG002 - see the protocol
        """As the protocol."""
        return (behind - 1) % self.period + 1 if behind else 0

    def table_rows(self, rows: int, most_behind: int, longest: int) -> int:  # noqa: ARG002 - see the protocol
        """As the protocol."""
        return min(self.period, most_behind) + longest

    def table(self, like: torch.Tensor, count: int) -> torch.Tensor:
        """As the protocol: the last token's row, then the rows behind it."""
        table = like.new_empty((count, *like.shape[1:]))
        if count == 1 or self.period == 1:
            write_sequential(table, first=0, num_experts=self._num_experts)
        else:
            write_sequential(table[1:], first=0, num_experts=self._num_experts)
            table[0] = table[1]
        return table

    def write_tail(self, rows: torch.Tensor, number: int, padded: int) -> None:  # noqa: ARG002 - see the protocol
        """As the protocol."""
        write_sequential(rows, first=number, num_experts=self._num_experts)


class SpreadNumbering:
    """One numbering over all padding rows of the layout; `first` is this rank's first number in it."""

    def __init__(self, top_k: int, num_experts: int, expert_parallel_size: int, *, first: int) -> None:
        self._num_experts = num_experts
        self._expert_parallel_size = expert_parallel_size
        self._first = first
        # The numbering comes round when every rank has had all of its experts, or has taken its turn in the remainder, equally often.
        least, larger_ranks = divmod(num_experts, expert_parallel_size)
        if top_k <= least * expert_parallel_size:
            turn = expert_parallel_size * least * (least + 1 if larger_ranks else 1)
            self.period = turn // math.gcd(turn, top_k)
        else:
            self.period = larger_ranks // math.gcd(larger_ranks, top_k - least * expert_parallel_size)

    def table_row(self, behind: int, padded: int) -> int:  # noqa: ARG002 - see the protocol
        """As the protocol."""
        return padded % self.period

    def table_rows(self, rows: int, most_behind: int, longest: int) -> int:  # noqa: ARG002 - see the protocol
        """As the protocol."""
        return min(self.period + longest, rows)

    def table(self, like: torch.Tensor, count: int) -> torch.Tensor:
        """As the protocol."""
        table = like.new_empty((count, *like.shape[1:]))
        self._write(table, self._first)
        return table

    def write_tail(self, rows: torch.Tensor, number: int, padded: int) -> None:  # noqa: ARG002 - see the protocol
        """As the protocol."""
        self._write(rows, self._first + padded)

    def _write(self, rows: torch.Tensor, first: int) -> None:
        write_spread(rows, first=first, num_experts=self._num_experts, expert_parallel_size=self._expert_parallel_size)


def _spread_experts(numbers: torch.Tensor, top_k: int, num_experts: int, ranks: int) -> torch.Tensor:
    """The experts `[rows, top_k]` of padding rows `numbers` `[rows, 1]`, int64."""
    least, larger_ranks = divmod(num_experts, ranks)
    choice = torch.arange(top_k)
    if top_k <= least * ranks:
        slot = numbers * top_k + choice
        rank, turn = slot % ranks, slot // ranks
        return _first_expert(rank, least, larger_ranks) + turn % (least + (rank < larger_ranks))
    # Every rank gives all that the smallest owns; only the larger ranks' last experts are left to take turns.
    even = (_first_expert(choice % ranks, least, larger_ranks) + choice // ranks)[: least * ranks]
    extra = top_k - least * ranks
    rank = (numbers * extra + torch.arange(extra)) % larger_ranks
    return torch.cat([even.expand(len(numbers), -1), _first_expert(rank, least, larger_ranks) + least], dim=1)


def _first_expert(rank: torch.Tensor, least: int, larger_ranks: int) -> torch.Tensor:
    return rank * least + rank.clamp(max=larger_ranks)


def expert_parallel_range(rank: int, *, num_experts: int, expert_parallel_size: int) -> range:
    """The experts that an expert-parallel rank owns: consecutive, an equal share, one more on the first `num_experts % size` ranks."""
    least, larger_ranks = divmod(num_experts, expert_parallel_size)
    start = rank * least + min(rank, larger_ranks)
    return range(start, start + least + (rank < larger_ranks))
