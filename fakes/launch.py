"""How work reaches a simulated device: the seam between operators and whoever orders them.

For: the interface of a scheduler, and the one that runs everything at once. Not for: deciding what an operator reads and writes
(`dispatch.py`), nor streams as users see them (`stream.py`).

An operator is handed over as a launch: a kernel with its host-side arguments, the tensors that it reads and writes, and the
stream it was issued on. A scheduler may run it now or later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from fakes.allocator import Block
    from fakes.operator_plan import OperatorPlan
    from fakes.stream_state import EventState, StreamState


class Scheduler(Protocol):
    """Orders the work of one machine. Every method may be called from any thread.

    `defers` says whether kernels may run later than their launch: operators then come by `issue`, with results that the dispatcher
    has made (`fakes.deferral`), else by `launch`. `tracks` says whether `issue` needs to know what is read and written.
    """

    defers: bool
    tracks: bool

    def launch(
        self, plan: OperatorPlan, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], stream: StreamState
    ) -> Any:
        """Have `kernel(*args, **kwargs)` run on a stream now; what it returns.

        `args` and `kwargs` hold the host tensors that carry the devices' bytes. `plan.mutated` names the positions and keywords
        that the kernel writes; everything else is read only.
        """

    def record(self, event: EventState, stream: StreamState) -> None:
        """Note on a stream that `event` happens there."""

    def wait(self, event: EventState, stream: StreamState) -> None:
        """Hold a stream until the event's last record."""

    def query_event(self, event: EventState) -> bool:
        """Whether the event's last record is complete; true where it was never recorded."""

    def query_stream(self, stream: StreamState) -> bool:
        """Whether a stream is idle."""

    def synchronize_event(self, event: EventState) -> None:
        """Return when the event's last record is complete."""

    def synchronize_stream(self, stream: StreamState) -> None:
        """Return when a stream is idle."""

    def synchronize_device(self, device_index: int) -> None:
        """Return when every stream of a device is idle."""

    def record_stream(self, block: Block, stream: StreamState) -> None:
        """Note that `stream` uses a block that another stream allocated."""

    def freed(self, block: Block) -> None:
        """Note that the last tensor on a block is gone, before the allocator may hand its bytes out again.

        From here on, in the order of `block.stream`, the contents are undefined. Called from `__del__`: in any thread, also while
        this thread is inside the scheduler; it raises nothing and runs no kernel. `block.recorded_streams` are the other streams
        that were declared with `record_stream`.
        """

    def released(self, memory: torch.Tensor) -> None:
        """Note that host bytes that carried blocks are given back to the system (a segment that is flushed): no launch will ever
        use them as the same memory again. The caller has synchronized the device."""

    def unpinned(self, start: int, nbytes: int) -> None:
        """Note that pinned host memory at an address is gone. Called from `__del__`, as `freed`."""

    def drain(self) -> None:
        """Run everything, and raise nothing: the scheduler's life ends."""

    def untold(self) -> Exception | None:
        """Run everything; an error that no call has raised so far, and none will if the program ends here."""

    def mark(self, stream: StreamState) -> Any:
        """A ticket for all the work issued on a stream so far, for `is_complete`. Raises nothing."""

    def is_complete(self, ticket: Any) -> bool:
        """Whether the work behind a ticket has run, now and without running any. A true answer orders what the host does next
        after that work. Raises nothing."""

    def issue(
        self,
        kernel: Callable[[], Any],
        reads: Sequence[torch.Tensor],
        writes: Sequence[torch.Tensor],
        stream: StreamState,
        *,
        name: str = "kernel",
        waits: Sequence[Any] = (),
        duration: int = 2_000,
    ) -> Any:
        """Launch a host callable on a stream; a ticket, as `mark` gives, for its completion.

        `kernel` works on host tensors that it holds already (the bytes of device tensors, or pinned memory). `reads` and
        `writes` are those host tensors: they say what it touches. `waits` are tickets that it runs after, besides what was issued
        on the stream before. `duration` is in simulated nanoseconds.
        """

    def run(self, ticket: Any) -> None:
        """Have the work behind a ticket run now, with what it needs. Unlike a synchronization this orders nothing: the host may not
        count on it."""

    def sleep(self, nanoseconds: int, stream: StreamState) -> None:
        """Keep a stream busy for so long on the device clock."""

    def now(self) -> int:
        """The device clock, in simulated nanoseconds."""


class EagerScheduler:
    """Runs every launch at once, in the order of issue; streams are always idle. The clock counts launches, one microsecond
    each."""

    defers = False
    tracks = False

    def __init__(self) -> None:
        self._nanoseconds = 0

    def launch(
        self,
        plan: OperatorPlan,  # noqa: ARG002 - a scheduler that defers needs it
        kernel: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        stream: StreamState,  # noqa: ARG002
    ) -> Any:
        """See `Scheduler.launch`."""
        self._nanoseconds += 1000
        return kernel(*args, **kwargs)

    def record(self, event: EventState, stream: StreamState) -> None:
        """See `Scheduler.record`."""
        self._nanoseconds += 1000
        event.recorded_on = stream
        event.nanoseconds = self._nanoseconds

    def wait(self, event: EventState, stream: StreamState) -> None:
        """See `Scheduler.wait`: everything has run already."""

    def query_event(self, event: EventState) -> bool:  # noqa: ARG002
        """See `Scheduler.query_event`."""
        return True

    def query_stream(self, stream: StreamState) -> bool:  # noqa: ARG002
        """See `Scheduler.query_stream`."""
        return True

    def synchronize_event(self, event: EventState) -> None:
        """See `Scheduler.synchronize_event`."""

    def synchronize_stream(self, stream: StreamState) -> None:
        """See `Scheduler.synchronize_stream`."""

    def synchronize_device(self, device_index: int) -> None:
        """See `Scheduler.synchronize_device`."""

    def record_stream(self, block: Block, stream: StreamState) -> None:
        """See `Scheduler.record_stream`: nothing runs later than the free."""

    def freed(self, block: Block) -> None:
        """See `Scheduler.freed`: nothing is pending that could still use it."""

    def released(self, memory: torch.Tensor) -> None:
        """See `Scheduler.released`."""

    def unpinned(self, start: int, nbytes: int) -> None:
        """See `Scheduler.unpinned`."""

    def drain(self) -> None:
        """See `Scheduler.drain`: nothing is pending."""

    def untold(self) -> Exception | None:
        """See `Scheduler.untold`: everything was raised at once."""
        return None

    def mark(self, stream: StreamState) -> Any:  # noqa: ARG002
        """See `Scheduler.mark`."""
        return None

    def is_complete(self, ticket: Any) -> bool:  # noqa: ARG002
        """See `Scheduler.is_complete`: always."""
        return True

    def issue(
        self,
        kernel: Callable[[], Any],
        reads: Sequence[torch.Tensor],  # noqa: ARG002
        writes: Sequence[torch.Tensor],  # noqa: ARG002
        stream: StreamState,  # noqa: ARG002
        *,
        name: str = "kernel",  # noqa: ARG002
        waits: Sequence[Any] = (),  # noqa: ARG002
        duration: int = 2_000,
    ) -> Any:
        """See `Scheduler.issue`: it runs at once."""
        self._nanoseconds += duration
        kernel()

    def run(self, ticket: Any) -> None:
        """See `Scheduler.run`: it has run."""

    def sleep(self, nanoseconds: int, stream: StreamState) -> None:  # noqa: ARG002
        """See `Scheduler.sleep`."""
        self._nanoseconds += nanoseconds

    def now(self) -> int:
        """See `Scheduler.now`."""
        return self._nanoseconds
