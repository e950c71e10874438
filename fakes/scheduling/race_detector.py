"""Races: accesses to the same memory that the program does not order.

For: following what every launch touches, and saying what is wrong in one message. Not for: clocks (`happens_before.py`) and memory
(`accesses.py`).

An error is raised where the second access is issued, whatever the schedule and whether or not it would have gone wrong this time.
The end of a block's life counts as a write on the stream that allocated it, since that stream's later work may reuse the memory:

- A stream that used the block without any synchronization is reported twice: for the use, and for the free.
- Where the user's stream waited for the creator's before the use, but not the other way round, the use is in order and the free is
  not: `MissingRecordStreamError`, unless `record_stream` named the stream.
- Where the creator's stream waited for the user's after the use, or the host did, both are in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fakes.errors import AccessReport, MissingRecordStreamError, RaceError
from fakes.scheduling.accesses import Access, AccessHistory, access_of
from fakes.scheduling.happens_before import HappensBefore, is_before
from fakes.scheduling.launches import Launch, Queue
from fakes.stream_state import StreamState

_RECORDS_KEPT = 256


class Tracker:
    """What the launches of one machine touch, and in which order the program puts them."""

    def __init__(self) -> None:
        self.order = HappensBefore()
        self.history = AccessHistory()
        self._records: dict[Queue, list[Launch]] = {}

    def recorded(self, launch: Launch) -> None:
        """An event was recorded."""
        records = self._records.setdefault(launch.queue, [])
        records.append(launch)
        if len(records) > _RECORDS_KEPT:
            del records[: _RECORDS_KEPT // 2]

    def touch(self, launch: Launch, reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]) -> list[tuple[Access, Access]]:
        """Note what a launch reads and writes; pairs of an earlier access and one of this launch that nothing orders."""
        conflicts: list[tuple[Access, Access]] = []
        accesses: list[Access] = []
        written = {id(tensor) for tensor in writes}
        for tensors, is_write in ((writes, True), (reads, False)):
            for tensor in tensors:
                if not is_write and id(tensor) in written:
                    continue
                access = access_of(launch, tensor, is_write)
                if access is not None:
                    accesses.append(access)
                    conflicts += [(earlier, access) for earlier in self.history.add(access)]
        launch.accesses = accesses
        return conflicts

    def report(self, conflicts: Sequence[tuple[Access, Access]], recorded: Sequence[StreamState]) -> list[RaceError]:
        """An error for each pair of accesses that nothing orders, except where the second is a free and `record_stream` named the
        first one's stream."""
        return [
            self._error(first, second)
            for first, second in conflicts
            if not (second.launch.is_free and first.launch.queue.stream in recorded)
        ]

    def _error(self, first: Access, second: Access) -> RaceError:
        earlier, later = _described(first), _described(second)
        missing = self._missing_edge(first.launch, second.launch)
        if second.launch.is_free and not first.launch.is_free:
            message = (
                "memory is freed while another stream may still use it: a missing record_stream\n"
                f"  use:     {earlier}\n"
                f"  free:    {later}\n"
                f"  missing: {missing}\n"
                f"  remedy:  tensor.record_stream(stream) for {earlier.stream} before the last reference goes, or let "
                f"{later.stream} wait for it first"
            )
            return MissingRecordStreamError(message, earlier, later, missing)
        message = (
            f"two accesses to the same memory are not ordered: {earlier.kind}, then {later.kind}\n"
            f"  first:   {earlier}\n"
            f"  second:  {later}\n"
            f"  missing: {missing}\n"
            f"  remedy:  record an event on {earlier.stream} after the first access and let {later.stream} wait for it before the "
            "second"
        )
        return RaceError(message, earlier, later, missing)

    def _missing_edge(self, first: Launch, second: Launch) -> str:
        source, target = first.queue.stream, second.queue.stream
        for record in self._records.get(first.queue, ()):
            if record.position > first.position and not is_before(record, second):
                return (
                    f"{target} never waited for the event recorded on {source} after the first access (launch {record.number}, at "
                    f"{record.where})"
                )
        return f"no event was recorded on {source} after the first access, and {target} never waited for that stream"


def _described(access: Access) -> AccessReport:
    launch = access.launch
    kind = "free" if launch.is_free else "write" if access.is_write else "read"
    return AccessReport(kind, launch.name, launch.number, str(launch.queue.stream), launch.where, access.stop - access.start)
