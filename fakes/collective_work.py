"""When a collective runs, and what its caller holds.

For: the order of collectives and of the device's other work (COL-2). Not for: what they move (`collective_kernels.py`).

A collective has two kernels on the transport's own stream. The first runs after the work on the stream that was current at issue: it
takes the inputs and hands them to gloo, which goes on by itself. It is made to run at issue, because other ranks depend on it, whatever
this rank's host does next. The second delivers the results. It is put on the stream when someone waits for the collective or for the
device, not before, so that a result that nobody waited for is never there by luck. `wait()` lasts until gloo is done (errors come
out of it, and no kernel ever blocks on another rank), and has the stream that is current then wait for the second kernel.

Collectives of one group and device are delivered in the order of issue; point-to-point transfers on their own, since their
partners need not have come to the others.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

from fakes.collective_checks import require_one_device
from fakes.collective_kernels import Collective, Delivery, deliver, room
from fakes.device import Device
from fakes.machine import Machine, current_machine
from fakes.scheduling import issue, poison
from fakes.stream_state import EventState, StreamState

_MOST_OUTSTANDING = 256
"""So many collectives may be under way that nobody waited for; the oldest is then waited for."""
_MOST_STREAMS = 32
"""So many streams a device has for communication; more groups share them."""
_NO_LIMIT = timedelta(0)
c10d: Any = _distributed_c10d


def _nothing() -> None:
    pass


class CollectiveWork(dist.Work):
    """One collective under way, as `torch.distributed` hands it out. Made by `issue_collective`."""

    def __init__(self, collective: Collective, group_name: str, device: Device, stream: StreamState) -> None:
        super().__init__()
        self._name = collective.name
        self._is_point_to_point = collective.is_point_to_point
        self._blocks_host = collective.blocks_host
        self._group_name = group_name
        self._device = device
        self._stream = stream
        self._reads, self._writes = collective.reads, collective.writes
        self._transfers: list[Any] = []
        self._deliver: Delivery = _nothing
        self._error: Exception | None = None
        self._source = -1

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Have the current stream wait for the result. The host waits for the other ranks.

        Raises:
            RuntimeError: another rank failed, or did not come in time.
        """
        self.finish(timeout)
        machine = current_machine()
        stream = machine.current_stream(self._device.index)
        wait_for_stream(machine, self._stream, stream)
        if self._blocks_host:
            machine.scheduler.synchronize_stream(stream)
        return True

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def finish(self, timeout: timedelta = _NO_LIMIT) -> None:
        """Put the second kernel on the transport's stream, and those of earlier collectives before it.

        Raises:
            RuntimeError: see `wait`.
        """
        outstanding = self._device.outstanding_collectives
        if self not in outstanding:
            if self._error is not None:
                raise self._error
            return
        earlier = [] if self._is_point_to_point else outstanding[: outstanding.index(self)]
        for work in earlier:
            if work._group_name == self._group_name and not work._is_point_to_point:
                work._end(timeout)
        self._end(timeout)

    def _end(self, timeout: timedelta) -> None:
        device, writes, results = self._device, self._writes, self._deliver
        device.outstanding_collectives.remove(self)
        # PyTorch's C++ side may hold a work whose Python part nobody else holds; it must outlive that. The tensors need not, nor the
        # transfers, which would keep the connections of a group that is destroyed.
        device.recent_collectives.append(self)
        transfers, self._transfers = self._transfers, []
        self._reads, self._writes, self._deliver = (), (), _nothing
        try:
            for transfer in transfers:
                transfer.wait() if timeout == _NO_LIMIT else transfer.wait(timeout)
            if self._is_point_to_point and writes:
                self._source = transfers[0]._source_rank()
        except Exception as error:
            self._error = error
            raise
        issue(results, (), writes, self._stream, name=f"{self._name}: results")

    def is_completed(self) -> bool:
        """Whether the other ranks have done their part."""
        return all(transfer.is_completed() for transfer in self._transfers)

    def is_success(self) -> bool:
        """Whether it is over, and well."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """What went wrong, once it was waited for."""
        return self._error

    def _source_rank(self) -> int:
        """The rank that a message of any source came from."""
        self.wait()
        return self._source

    def result(self) -> list[torch.Tensor]:
        """The tensors that it writes, or only reads; empty once it was waited for."""
        return list(self._writes or self._reads)

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the tensors, complete: this waits first, as `wait` does."""
        tensors = self.result()
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        self.wait()
        future.set_result(tensors)
        return future


def issue_collective(collective: Collective, group: Any) -> CollectiveWork:
    """Issue a collective on the stream that is current on its tensors' device.

    Raises:
        RuntimeError: the transport refused it, for instance because the ranks differ, or another one is gone.
    """
    machine = current_machine()
    index = require_one_device(collective.name, collective.tensors)
    device = machine.open(index)
    name = group.group_name
    stream = communication_stream(device, (name, collective.name if collective.is_point_to_point else ""))
    work = CollectiveWork(collective, name, device, stream)
    _make_way(device, work)
    wait_for_stream(machine, machine.current_stream(index), stream)
    transport = group._get_backend(device.torch_device)

    def start() -> None:
        try:
            work._transfers, work._deliver = collective.start(transport)
        except Exception as error:  # noqa: BLE001 - the transport's, for the caller: the device has done nothing wrong
            work._error = error
            return
        if machine.settings.schedule != "eager":
            for tensor in collective.writes:  # from here on until the results are there it may hold anything
                undefined = room(tensor)
                poison.fill(undefined)
                deliver(tensor, undefined)

    ticket = issue(start, collective.reads, collective.writes, stream, name=f"{collective.name}: start")
    machine.scheduler.run(ticket)
    if work._error is not None:
        raise work._error
    device.outstanding_collectives.append(work)
    return work


def communication_stream(device: Device, purpose: tuple[str, str]) -> StreamState:
    """The stream of a group's collectives on a device, or of one kind of transfer between two of its ranks."""
    streams = device.communication_streams
    if purpose not in streams:
        for gone in [known for known in streams if not _is_registered(known[0])]:
            device.idle_communication_streams.append(streams.pop(gone))
        streams[purpose] = _free_stream(device)
    return streams[purpose]


def _free_stream(device: Device) -> StreamState:
    """A stream that no group has, as long as there may be one more; else one that a group has."""
    used = list(dict.fromkeys(device.communication_streams.values()))
    idle = [stream for stream in dict.fromkeys(device.idle_communication_streams) if stream not in used]
    device.idle_communication_streams[:] = idle[1:]
    if idle:
        return idle[0]
    return device.new_stream() if len(used) < _MOST_STREAMS else used[len(device.communication_streams) % _MOST_STREAMS]


def _is_registered(group_name: str) -> bool:
    """Whether PyTorch knows a group of that name; one that it does not know will not communicate again."""
    try:
        c10d._resolve_process_group(group_name)
    except RuntimeError:
        return False
    return True


def wait_for_stream(machine: Machine, earlier: StreamState, later: StreamState) -> None:
    """Hold `later` until what `earlier` has been given so far is done."""
    event = EventState()
    machine.scheduler.record(event, earlier)
    machine.scheduler.wait(event, later)


def finish_all(device: Device) -> None:
    """Put the results of everything that is under way on a device on its streams, for a wait for the whole device."""
    while device.outstanding_collectives:
        device.outstanding_collectives[0].finish()


def _make_way(device: Device, work: CollectiveWork) -> None:
    """Finish what a new collective of the same stream follows on, and the oldest of too many."""
    touched = _blocks(work)
    for earlier in list(device.outstanding_collectives):
        if earlier._stream is work._stream and touched & _blocks(earlier):
            earlier.finish()
    if len(device.outstanding_collectives) >= _MOST_OUTSTANDING:
        device.outstanding_collectives[0].finish()


def _blocks(work: CollectiveWork) -> set[int]:
    return {id(tensor._block) for tensor in (*work._reads, *work._writes)}
