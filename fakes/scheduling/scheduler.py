"""The scheduler that defers: work is queued, and runs in an order that a policy takes among the legal ones.

For: what a launch waits for, when the host has to wait, and what a race does. Not for: the queues (`queued_work.py`), which legal order is
taken (`policies.py`, `exploration.py`), nor what an operator needs to be queued (`fakes.deferral`).

Work of one stream runs in the order of issue; a wait holds its stream until the event's record has run; what the host waits for runs
before the host goes on; nothing else is promised. A query that is answered "no" lets the device do one launch, so that code that
polls ends. A kernel that fails leaves its results poisoned, and every later launch on, or wait for, its device raises.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fakes.errors import RaceError
from fakes.scheduling import poison, simulated_time
from fakes.scheduling.call_site import call_site
from fakes.scheduling.happens_before import join
from fakes.scheduling.host_mode import HostMode
from fakes.scheduling.launches import Launch, Queue, must_follow, needed
from fakes.scheduling.policies import Policy
from fakes.scheduling.queued_work import QueuedWork
from fakes.scheduling.race_detector import Tracker
from fakes.stream_state import EventState, StreamState

if TYPE_CHECKING:
    from fakes.allocator import Block
    from fakes.operator_plan import OperatorPlan

MOST_PENDING = 1024
"""A stream holds so many launches; the host waits for room, as on hardware."""


class DeferringScheduler(QueuedWork):
    """See `fakes.launch.Scheduler`. `races` are the races reported so far. `reverses` is asked for each conflict that the program does
    not order whether the later launch is to run first."""

    defers = True

    def __init__(
        self,
        policy: Policy,
        *,
        lock: Any = None,
        detect_races: bool = False,
        reverses: Callable[[], bool] | None = None,
        fails_at_once: bool = False,
    ) -> None:
        super().__init__()
        self.policy = policy
        self.races: list[RaceError] = []
        self.tracker = Tracker() if detect_races or reverses else None
        self.tracks = self.tracker is not None
        self._lock: Any = lock or threading.RLock()
        self._detects_races = detect_races
        self._reverses = reverses
        self._fails_at_once = fails_at_once
        self._sequence = 0
        self._host_time = 0
        self._unpinned: deque[tuple[int, int]] = deque()
        self._freed: deque[tuple[torch.Tensor, StreamState, tuple[StreamState, ...]]] = deque()
        self._observed: deque[Launch] = deque()
        self._unraised: list[RaceError] = []

    # Issuing ------------------------------------------------------------------------------------------------------------------

    def launch(
        self, plan: OperatorPlan, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], stream: StreamState
    ) -> Any:
        """See `Scheduler.launch`: for a kernel whose result the host needs now. It runs on the stream, and the host waits."""
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        results: list[Any] = []
        self.issue(lambda: results.append(kernel(*args, **kwargs)), tensors, (), stream, name=plan.name)
        self.synchronize_stream(stream)
        return results[0]

    def issue(
        self,
        kernel: Callable[[], Any] | None,
        reads: Sequence[torch.Tensor],
        writes: Sequence[torch.Tensor],
        stream: StreamState,
        *,
        name: str = "kernel",
        waits: Sequence[Any] = (),
        duration: int = simulated_time.KERNEL,
    ) -> Launch:
        """See `Scheduler.issue`. `duration` is in simulated nanoseconds.

        Raises:
            RaceError: races are detected, and this launch is the second access; it is then not issued.
            RuntimeError: a kernel failed on this device before.
        """
        with self._lock:
            if self._freed or self._unraised or self._observed or self._unpinned:
                self._enter()
            if self._failures:
                self._failures.raise_for(stream.device_index)
            queue = stream.queue
            if queue is None or queue.owner is not self:
                queue = self._queue(stream)
            launch = Launch(name, kernel, queue)
            if waits or self.tracker is not None:
                self._order(launch, reads, writes, waits)
            self._append(launch, duration)
            self._advance()
            if self._fails_at_once and self._failures:
                raise self._failures.take()
            return launch

    def _order(self, launch: Launch, reads: Sequence[Any], writes: Sequence[Any], waits: Sequence[Any]) -> None:
        """Put a launch after what it waits for, and compare what it touches with what was touched before."""
        queue, tracker = launch.queue, self.tracker
        tickets = [ticket for ticket in waits if ticket is not None]
        launch.after = [ticket for ticket in tickets if not ticket.is_done]
        for ticket in tickets:
            queue.time = max(queue.time, ticket.end)
        if tracker is not None:
            launch.number, launch.sequence, launch.position = self._issued, self._sequence, queue.issued
            launch.site = call_site()
            for ticket in tickets:
                tracker.order.waited(queue, ticket)
            tracker.order.launched(launch)
            conflicts = tracker.touch(launch, reads, writes)
            if conflicts:
                self._conflicting(conflicts, ())

    def _append(self, launch: Launch, duration: int) -> None:
        queue, number, pending = launch.queue, self._issued, launch.queue.pending
        launch.number = number
        launch.sequence = self._sequence
        launch.position = queue.issued
        self._issued = number + 1
        self._sequence += 1
        queue.issued += 1
        self._host_time += simulated_time.LAUNCH
        launch.end = queue.time = (queue.time if queue.time > self._host_time else self._host_time) + duration
        launch.turn = number if launch.kernel is None else number + self.policy.hold(launch)
        pending.append(launch)
        queue.last = launch
        if len(pending) > MOST_PENDING:
            self._finish((pending[MOST_PENDING // 2],))

    def _conflicting(self, conflicts: Sequence[tuple[Any, Any]], recorded: Sequence[StreamState]) -> None:
        if self._detects_races and self.tracker is not None:
            errors = self.tracker.report(conflicts, recorded)
            # Copies, since the traceback of what is raised holds the user's tensors.
            self.races += [error.copy() for error in errors]
            if errors and conflicts[0][1].launch.is_free:
                self._unraised += errors
            elif errors:
                raise errors[-1]  # about the latest access
        if self._reverses is not None:
            for first, second in conflicts:
                earlier, later = first.launch, second.launch
                if not earlier.is_done and not later.is_free and self._reverses() and not must_follow(later, earlier):
                    earlier.after.append(later)

    def record(self, event: EventState, stream: StreamState) -> None:
        """See `Scheduler.record`."""
        with self._lock:
            self._enter()
            queue = self._queue(stream)
            launch = Launch("record", None, queue)
            if self.tracker is not None:
                self._order(launch, (), (), ())
            self._append(launch, 0)
            if self.tracker is not None:
                self.tracker.recorded(launch)
            event.recorded_on = stream
            event.ticket = launch
            event.nanoseconds = launch.end
            self._advance()

    def wait(self, event: EventState, stream: StreamState) -> None:
        """See `Scheduler.wait`."""
        ticket = event.ticket
        if ticket is None:
            return
        with self._lock:
            self._enter()
            launch = Launch("wait", None, self._queue(stream))
            self._order(launch, (), (), (ticket,))
            self._append(launch, 0)
            self._advance()

    def sleep(self, nanoseconds: int, stream: StreamState) -> None:
        """See `Scheduler.sleep`."""
        self.issue(lambda: None, (), (), stream, name="sleep", duration=nanoseconds)

    # Waiting ------------------------------------------------------------------------------------------------------------------

    def query_event(self, event: EventState) -> bool:
        """See `Scheduler.query_event`."""
        return self._query(event.ticket)

    def query_stream(self, stream: StreamState) -> bool:
        """See `Scheduler.query_stream`."""
        with self._lock:
            return self._query(self._queue(stream).last)

    def synchronize_event(self, event: EventState) -> None:
        """See `Scheduler.synchronize_event`."""
        if event.ticket is not None:
            with self._lock:
                self._wait_for((event.ticket,))

    def synchronize_stream(self, stream: StreamState) -> None:
        """See `Scheduler.synchronize_stream`."""
        with self._lock:
            queue = self._queue(stream)
            self._enter()
            if queue.last is not None:
                self._wait_for((queue.last,))
            self._know(queue)

    def synchronize_device(self, device_index: int) -> None:
        """See `Scheduler.synchronize_device`."""
        with self._lock:
            self._enter()
            queues = [queue for queue in self._queues if queue.stream.device_index == device_index]
            self._wait_for([queue.last for queue in queues if queue.last is not None], device_index)
            for queue in queues:
                self._know(queue)

    def drain(self) -> None:
        """Run everything, and raise nothing: the machine is about to be reset."""
        with self._lock:
            self.tracker = None  # nobody will ask for another race
            self._enter(raising=False)
            with contextlib.suppress(RuntimeError):  # work that a fault made wait for itself is given up
                self._finish([queue.last for queue in self._queues if queue.last is not None])

    def untold(self) -> Exception | None:
        """See `Scheduler.untold`."""
        with self._lock:
            self._enter(raising=False)
        self.drain()
        return self._unraised[0] if self._unraised else self._failures.untold()

    def _wait_for(self, launches: Sequence[Launch], device_index: int | None = None) -> None:
        self._enter()
        self._finish(launches)
        for launch in launches:
            self._host_time = max(self._host_time, launch.end)
            if self.tracker is not None:
                self.tracker.order.observed(launch)
        if self._failures:
            for index in [device_index] if device_index is not None else {launch.queue.stream.device_index for launch in launches}:
                self._failures.raise_for(index)

    def _know(self, queue: Queue) -> None:
        """The host knows that a queue is empty, launches that were refused for a race included."""
        if self.tracker is not None:
            join(self.tracker.order.host, queue.clock)

    def _query(self, ticket: Launch | None) -> bool:
        if ticket is None:
            return True
        with self._lock:
            self._enter()
            if ticket.is_done:
                if self.tracker is not None:
                    self.tracker.order.observed(ticket)
                self._host_time = max(self._host_time, ticket.end)
                return True
            self._host_time += simulated_time.LAUNCH
            with HostMode():
                launch = self._best(needed((ticket,)))
                if launch is not None:
                    self._run(launch)
            return False

    # Memory -------------------------------------------------------------------------------------------------------------------

    def record_stream(self, block: Block, stream: StreamState) -> None:
        """See `Scheduler.record_stream`: the block's note of it is looked at when it is freed."""

    def freed(self, block: Block) -> None:
        """See `Scheduler.freed`."""
        # Taken up where the scheduler is next entered: this may run in the middle of anything, a garbage collection included.
        memory = block.memory
        if memory is not None:
            self._freed.append((memory, block.stream, block.recorded_streams))

    def released(self, memory: torch.Tensor) -> None:
        """See `Scheduler.released`."""
        with self._lock:
            if self.tracker is not None:
                start = memory.data_ptr()
                self.tracker.history.forget(start, start + memory.numel())

    def unpinned(self, start: int, nbytes: int) -> None:
        """See `Scheduler.unpinned`."""
        self._unpinned.append((start, nbytes))

    def mark(self, stream: StreamState) -> Any:
        """See `Scheduler.mark`."""
        queue: Queue | None = stream.queue
        return queue.last if queue is not None and queue.owner is self else None

    def is_complete(self, ticket: Any) -> bool:
        """See `Scheduler.is_complete`."""
        if ticket is None:
            return True
        if ticket.is_done and self.tracker is not None:
            self._observed.append(ticket)
        return bool(ticket.is_done)

    def run(self, ticket: Any) -> None:
        """See `Scheduler.run`."""
        with self._lock:
            self._enter()
            if ticket is not None:
                self._finish((ticket,))

    def now(self) -> int:
        """See `Scheduler.now`: the host's clock, which is that of the devices."""
        return self._host_time

    # Outside the lock -----------------------------------------------------------------------------------------------------------

    def _enter(self, raising: bool = True) -> None:
        """Take up what happened outside the lock."""
        while self._observed:
            ticket = self._observed.popleft()
            if self.tracker is not None:
                self.tracker.order.observed(ticket)
        while self._unpinned:
            start, nbytes = self._unpinned.popleft()
            if self.tracker is not None:
                self.tracker.history.forget(start, start + nbytes)
        while self._freed:
            self._end_life(*self._freed.popleft())
        if self._unraised and raising:
            error = self._unraised[0]
            self._unraised.clear()
            raise error

    def _end_life(self, memory: torch.Tensor, stream: StreamState, recorded: Sequence[StreamState]) -> None:
        queue = self._queue(stream)
        if self.tracker is not None:
            launch = Launch("free", None, queue)
            launch.is_free = launch.is_done = True
            launch.number, launch.sequence, launch.position = self._issued, self._sequence, queue.issued
            launch.site = call_site()
            self.tracker.order.launched(launch)
            conflicts = self.tracker.touch(launch, (), (memory,))
            if conflicts:
                self._conflicting(conflicts, recorded)
        if recorded:
            return  # the allocator holds the memory until those streams are done with it
        if not queue.pending:
            poison.fill(memory)
        elif queue.pending[-1].poisons is None:
            queue.pending[-1].poisons = [memory]
        else:
            queue.pending[-1].poisons.append(memory)
