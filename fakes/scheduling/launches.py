"""Launches and the queues that hold them.

For: the data that a scheduler orders. Not for: choosing among them (`policies.py`) or running them (`scheduler.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fakes.stream_state import StreamState

if TYPE_CHECKING:
    from fakes.scheduling.accesses import Access


class Launch:
    """One entry of a queue: a kernel, or (where `kernel` is None) a record or a wait.

    `number` counts the launches of the machine in the order of issue; `position` those of the queue. `after` are launches that must
    run first, besides those before it in the queue. `turn` is the earliest number of issued launches at which it runs of its own
    accord. `end` is when it ends in simulated time, in nanoseconds. `clock` is the vector clock where one is kept. `site` is the
    line of the user's code, or "". `is_free` marks the end of a block's life.
    """

    __slots__ = (
        "accesses",
        "after",
        "clock",
        "end",
        "is_done",
        "is_free",
        "kernel",
        "name",
        "number",
        "position",
        "queue",
        "sequence",
        "site",
        "turn",
    )

    def __init__(self, name: str, kernel: Callable[[], Any] | None, queue: Queue, after: Sequence[Launch] = ()) -> None:
        self.name = name
        self.kernel = kernel
        self.queue = queue
        self.is_done = False
        self.after = [launch for launch in after if not launch.is_done]
        self.number = 0
        self.sequence = 0
        self.position = 0
        self.turn = 0
        self.end = 0
        self.is_free = False
        self.clock: tuple[int, ...] = ()
        self.accesses: Sequence[Access] = ()
        self.site = ""

    @property
    def is_ready(self) -> bool:
        """Whether what it waits for has run; it must be the head of its queue besides."""
        return not self.after or all(launch.is_done for launch in self.after)

    def __repr__(self) -> str:
        return f"{self.name} (launch {self.number}) on {self.queue.stream}"


class Queue:
    """What was issued on one stream and has not run. `timeline` is its place in vector clocks; `time` is when its last launch ends
    in simulated time; `last` is the last launch issued."""

    __slots__ = ("clock", "issued", "last", "owner", "pending", "stream", "time", "timeline")

    def __init__(self, owner: Any, stream: StreamState, timeline: int) -> None:
        self.owner = owner
        self.stream = stream
        self.timeline = timeline
        self.pending: deque[Launch] = deque()
        self.issued = 0
        self.time = 0
        self.last: Launch | None = None
        self.clock: list[int] = []
