"""Which work is ordered before which: vector clocks.

For: the order that a program asks for by streams, events and synchronization, whatever order the scheduler takes. Not for: what the
work touches (`accesses.py`).

Every queue is a timeline, and a launch is one tick of it. A launch comes after the work before it in its queue, after the events that
its stream waited for, and after everything that the host had waited for when it was issued. The host is one timeline for all threads:
what one of them has waited for counts as known to all from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

from fakes.scheduling.launches import Launch, Queue


def join(clock: list[int], other: Sequence[int]) -> None:
    """Make a clock know what another one knows."""
    if len(clock) < len(other):
        clock.extend([0] * (len(other) - len(clock)))
    for timeline, tick in enumerate(other):
        clock[timeline] = max(clock[timeline], tick)


class HappensBefore:
    """The clocks of one machine."""

    def __init__(self) -> None:
        self.host: list[int] = []

    def launched(self, launch: Launch) -> None:
        """Give a launch its clock: that of its queue, one tick later. What it waits for must be known to the queue by `waited`."""
        queue = launch.queue
        join(queue.clock, self.host)
        if len(queue.clock) <= queue.timeline:
            queue.clock.extend([0] * (queue.timeline + 1 - len(queue.clock)))
        queue.clock[queue.timeline] += 1
        launch.clock = tuple(queue.clock)

    def waited(self, queue: Queue, launch: Launch) -> None:
        """A queue waits for a launch."""
        join(queue.clock, launch.clock)

    def observed(self, launch: Launch) -> None:
        """The host knows that a launch has run."""
        join(self.host, launch.clock)


def is_before(first: Launch, second: Launch) -> bool:
    """Whether a program orders `first` before `second`."""
    timeline = first.queue.timeline
    return timeline < len(second.clock) and first.clock[timeline] <= second.clock[timeline]
