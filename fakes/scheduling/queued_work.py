"""What is queued on the streams of one machine, and how it is run.

For: running launches in a legal order, and what a kernel's failure does. Not for: what a launch waits for, and when (`scheduler.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fakes.scheduling import poison
from fakes.scheduling.failures import Failures
from fakes.scheduling.host_mode import HostMode
from fakes.scheduling.launches import Launch, Queue, first_due, needed
from fakes.stream_state import StreamState

_NONE: dict[Queue, int] = {}


class QueuedWork:
    """The queues of a machine, in the order of first use. Whoever calls it holds the machine's lock."""

    def __init__(self) -> None:
        self._queues: list[Queue] = []
        self._issued = 0
        self._failures = Failures()

    def _queue(self, stream: StreamState) -> Queue:
        queue: Queue | None = stream.queue
        if queue is None or queue.owner is not self:
            queue = stream.queue = Queue(self, stream, len(self._queues))
            self._queues.append(queue)
        return queue

    def _advance(self) -> None:
        """Run what is due."""
        launch = self._best(_NONE)
        if launch is not None:
            with HostMode():
                while launch is not None:
                    self._run(launch)
                    launch = self._best(_NONE)

    def _finish(self, targets: Iterable[Launch]) -> None:
        """Run until the targets have run."""
        waiting = [launch for launch in targets if not launch.is_done]
        if not waiting:
            return
        with HostMode():
            limits = needed(waiting)
            for target in waiting:
                while not target.is_done:
                    launch = self._best(limits)
                    if launch is None:
                        raise RuntimeError(f"the simulated scheduler cannot run {target!r}: it waits for itself")
                    self._run(launch)

    def _best(self, limits: Mapping[Queue, int]) -> Launch | None:
        return first_due(self._queues, self._issued, limits)

    def _run(self, launch: Launch) -> None:
        launch.queue.pending.popleft()
        kernel, launch.kernel = launch.kernel, None
        if kernel is not None:
            try:
                kernel()
            except Exception as error:  # noqa: BLE001 - whatever a kernel raises is the device's failure
                self._failures.add(launch, error)
        if launch.after:
            launch.after = []
        launch.is_done = True
        if launch.poisons is not None:
            for memory in launch.poisons:
                poison.fill(memory)
            launch.poisons = None
