"""What a pool of ranks raises.

ConformanceError
├── RankFailure       a rank raised, died or stalled; every rank's end is in `ends` and in the text
└── DeviceLeaseError  every device is leased by another rank
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.errors import ConformanceError

if TYPE_CHECKING:
    from conformance.ranks.pool import RankEnd


_GAVE_UP = ("timed out", "timeout", "connection closed", "connection reset", "socket closed")
"""What transports say of a rank that waited for another one in vain."""


class RankFailure(ConformanceError):
    """A rank raised, died or stalled. `ends` has how each rank ended, in rank order; `culprit` is the one that most likely came first."""

    def __init__(self, program: str, ends: list[RankEnd]) -> None:
        self.ends = ends
        self.culprit = min((end for end in ends if end.how != "value"), key=_likely_first)
        described = "\n".join(end.described() for end in ends)
        super().__init__(f"{self.culprit.headline} ({len(ends)} ranks ran {program})\n{described}")


def _likely_first(end: RankEnd) -> int:
    """A rank that died, or that raised something of its own, is the cause; one that stalled may be; that others gave up waiting follows."""
    gave_up = any(words in end.message.lower() for words in _GAVE_UP)
    return {"died": 0, "raised": 3 if gave_up else 1, "stalled": 2}[end.how]


class DeviceLeaseError(ConformanceError):
    """Every device of this host is leased by a rank that runs."""
