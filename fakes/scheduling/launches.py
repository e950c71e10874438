"""Launches and the queues that hold them.

For: the data that a scheduler orders. Not for: choosing among them (`policies.py`) or running them (`scheduler.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fakes.scheduling.call_site import shortened
from fakes.stream_state import StreamState

if TYPE_CHECKING:
    import torch

    from fakes.scheduling.accesses import Access


class Launch:
    """One entry of a queue: a kernel, or (where `kernel` is None) a record or a wait.

    `number` counts the launches of the machine in the order of issue; `position` those of the queue. `after` are launches that must
    run first, besides those before it in the queue. `turn` is the earliest number of issued launches at which it runs of its own
    accord. `end` is when it ends in simulated time, in nanoseconds. `clock` is the vector clock where one is kept. `site` is the
    line of the user's code, or "". `poisons` is memory whose life ends after it. `is_free` marks the end of a block's life, which
    counts as an access and is never queued.
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
        "poisons",
        "position",
        "queue",
        "sequence",
        "site",
        "turn",
    )

    # Set where they are followed: `accesses`, `clock`, `site`. The rest is set by whoever queues it.

    def __init__(self, name: str, kernel: Callable[[], Any] | None, queue: Queue) -> None:
        self.name = name
        self.kernel = kernel
        self.queue = queue
        self.after: list[Launch] = []
        self.is_done = False
        self.is_free = False
        self.poisons: list[torch.Tensor] | None = None
        self.turn: int
        self.end: int
        self.number: int
        self.sequence: int
        self.position: int
        self.clock: tuple[int, ...]
        self.accesses: Sequence[Access]
        self.site: str

    @property
    def is_ready(self) -> bool:
        """Whether what it waits for has run; it must be the head of its queue besides."""
        return not self.after or all(launch.is_done for launch in self.after)

    @property
    def where(self) -> str:
        """The line of the user's code, or "unknown"."""
        return shortened(getattr(self, "site", "unknown"))

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


def needed(targets: Iterable[Launch]) -> dict[Queue, int]:
    """For each queue up to which sequence number its launches must run before the targets have run."""
    limits: dict[Queue, int] = {}
    scans: dict[Queue, Any] = {}
    work = list(targets)
    while work:
        launch = work.pop()
        queue, sequence = launch.queue, launch.sequence
        if launch.is_done or limits.get(queue, -1) >= sequence:
            continue
        limits[queue] = sequence
        scan = scans.get(queue)
        if scan is None:
            scan = scans[queue] = iter(queue.pending)
        for pending in scan:
            work.extend(pending.after)
            if pending is launch:
                break
    return limits


def first_due(queues: Sequence[Queue], issued: int, limits: Mapping[Queue, int]) -> Launch | None:
    """The launch to run next: of the heads that may run and are due, or within `limits`, the one that was due first."""
    best: Launch | None = None
    for queue in queues:
        if not queue.pending:
            continue
        head = queue.pending[0]
        if head.turn > issued and (not limits or head.sequence > limits.get(queue, -1)):
            continue
        if (best is None or (head.turn, head.sequence) < (best.turn, best.sequence)) and head.is_ready:
            best = head
    return best


def must_follow(later: Launch, earlier: Launch) -> bool:
    """Whether `later`, which is not queued yet, can only run after `earlier`, which is pending."""
    limits = needed([*later.after, *([later.queue.pending[-1]] if later.queue.pending else [])])
    return limits.get(earlier.queue, -1) >= earlier.sequence
