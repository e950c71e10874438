"""What a pool of ranks raises.

ConformanceError
└── RankFailure       a rank raised, died or stalled; every rank's end is in `ends` and in the text
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.errors import ConformanceError

if TYPE_CHECKING:
    from conformance.ranks.pool import RankEnd


class RankFailure(ConformanceError):
    """A rank raised, died or stalled. `ends` has how each rank ended, in rank order."""

    def __init__(self, program: str, ends: list[RankEnd]) -> None:
        super().__init__(f"{program} failed on {len(ends)} ranks:\n" + "\n".join(end.described() for end in ends))
        self.ends = ends
