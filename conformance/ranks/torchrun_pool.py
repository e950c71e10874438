"""Ranks that PyTorch's own launcher started, on one host or many, behind the same interface as ranks on this host.

For: rank 0 of `torchrun … -m conformance`, which runs pytest. Not for: the other processes (`followers.py`). Nothing here uses a process
group: rank 0 talks to each follower over a connection of its own, and the ranks meet at a store that rank 0 keeps.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from conformance import warm_server
from conformance.ranks import launch as launches
from conformance.ranks.followers import fork_follower
from conformance.ranks.launch import Launch
from conformance.ranks.lines import Lines
from conformance.ranks.pool import DIED, STALLED, USUAL_GRACE, VALUE, RankEnd, RankPool, program_path
from conformance.ranks.store_server import start_store

_ANSWER_LIMIT = 15.0  # seconds for a follower to say how a stalled rank ended, or that its rank has ended


class LaunchedRun:
    """Rank 0's side of a launch: who takes part, and why the run cannot go on, if it cannot."""

    def __init__(self, launch: Launch) -> None:
        """Meet the other processes; returns when all are there.

        Raises:
            TimeoutError: some did not come.
        """
        warm_server.import_torch()
        self.launch = launch
        self.lost = ""
        listener, meeting, self._launchers_store = launches.open_meeting(launch)
        self._own_follower = fork_follower(launch, meeting, listener)
        with listener:
            self.followers = _those_who_come(listener, launch, meeting.token)
        signal.signal(signal.SIGTERM, self._asked_to_end)

    def _asked_to_end(self, _number: int, _frame: object) -> None:
        self.lost = (
            self.lost or "torchrun ended this launch, since one of its processes died or somebody ended it; it restarts none"
        )

    def close(self, code: int) -> None:
        """Send everybody home, with the exit code of the run."""
        for follower in self.followers:
            with contextlib.suppress(OSError):
                follower.send({"exit": code})
        for follower in self.followers:
            follower.close()
        os.waitpid(self._own_follower, 0)


class TorchrunRankPool(RankPool):
    """The ranks of a launch. After a process of the launch died, every attempt says so, since torchrun restarts none: see `lost`."""

    def __init__(self, run: LaunchedRun, backend: Mapping[str, Any], *, lease_devices: bool = False) -> None:
        self.size = run.launch.size
        self._run = run
        self._configuration = {"backend": dict(backend), "lease_devices": lease_devices}
        self._store: Any = None
        self._epoch = 0
        self._attempts = 0

    @property
    def lost(self) -> str:
        """See `RankPool.lost`."""
        return self._run.lost

    def attempt(
        self, program: str | Callable[..., Any], *, timeout: float = 30.0, grace: float = USUAL_GRACE, **arguments: Any
    ) -> list[RankEnd]:
        """See `RankPool.attempt`."""
        if self.lost:
            return [RankEnd(rank, DIED, text=self.lost) for rank in range(self.size)]
        if self._store is None:
            self._configure()
        self._attempts += 1
        wanted = {
            "program": program_path(program),
            "arguments": arguments,
            "timeout": timeout,
            "grace": grace,
            "epoch": self._epoch,
            "number": self._attempts,
        }
        try:
            self._tell({"attempt": wanted}, range(self.size))
            ends = self._collect(timeout, grace)
        except BaseException:  # of a signal handler, say: what is answered later must not be taken for the next example's
            self._epoch += 1
            self._end_ranks(range(self.size))
            raise
        if any(end.how != VALUE for end in ends):
            self._epoch += 1
            self._end_ranks([end.rank for end in ends if end.how == VALUE])
        return ends

    def close(self) -> None:
        """See `RankPool.close`; the processes of the launch stay until the run ends."""
        if self._store is not None and not self.lost:
            self._end_ranks(range(self.size))
            self._epoch += 1

    def _configure(self) -> None:
        self._store = start_store("0.0.0.0")
        self._tell({"configure": {**self._configuration, "store_port": self._store.port}}, range(self.size))

    def _tell(self, message: dict[str, Any], ranks: Any) -> None:
        for rank in ranks:
            try:
                self._run.followers[rank].send(message)
            except OSError:
                self._lose(rank)

    def _lose(self, rank: int, how: str = "is gone") -> None:
        self._run.lost = self._run.lost or f"the process of rank {rank} {how}, and torchrun restarts none"

    def _collect(self, timeout: float, grace: float) -> list[RankEnd]:
        """How the program ended on each rank, in rank order."""
        deadline = time.monotonic() + timeout + _ANSWER_LIMIT
        ends: dict[int, RankEnd] = {}
        is_cancelled = False
        while len(ends) < self.size:
            waiting = {self._run.followers[rank].fileno(): rank for rank in range(self.size) if rank not in ends}
            ready, _, _ = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))
            if not ready and is_cancelled:
                break
            if not ready:
                is_cancelled = True
                deadline = time.monotonic() + _ANSWER_LIMIT
                self._tell({"cancel": True}, waiting.values())
            for descriptor in ready:
                rank = waiting[descriptor]
                ends[rank] = self._end_of(rank)
                if ends[rank].how != VALUE and not is_cancelled:
                    deadline = min(deadline, time.monotonic() + grace)
        for rank in set(range(self.size)) - set(ends):
            ends[rank] = RankEnd(rank, STALLED, text="the process of torchrun that keeps it does not answer")
            self._lose(rank, "does not answer")
        return [ends[rank] for rank in range(self.size)]

    def _end_of(self, rank: int) -> RankEnd:
        message = self._run.followers[rank].receive()
        if message is None:
            self._lose(rank)
            return RankEnd(rank, DIED, text="the process of torchrun that kept it is gone")
        return RankEnd(**message["end"])

    def _end_ranks(self, ranks: Any) -> None:
        """End the ranks that still run, so that the next example gets new ones on all."""
        self._tell({"end": True}, ranks)
        for rank in ranks:
            follower = self._run.followers[rank]
            follower.connection.settimeout(_ANSWER_LIMIT)
            while (message := follower.receive()) is not None and "ended" not in message:
                pass  # what an example that was interrupted has come to
            follower.connection.settimeout(None)
            if message is None:
                self._lose(rank, "is gone or does not answer")


def _those_who_come(listener: socket.socket, launch: Launch, token: str) -> list[Lines]:
    """A connection to each follower, by rank; whoever does not know the word is sent away."""
    limit = launches.MEETING_LIMIT.total_seconds()
    deadline = time.monotonic() + limit
    found: dict[int, Lines] = {}
    while len(found) < launch.size:
        listener.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            missing = sorted(set(range(launch.size)) - set(found))
            raise TimeoutError(f"the processes of the ranks {missing} did not come within {limit:g} s") from None
        connection.settimeout(10)
        who = Lines(connection)
        hello = who.receive() or {}
        if hello.get("token") != token:
            who.close()
            continue
        connection.settimeout(None)
        found[int(hello["rank"])] = who
    return [found[rank] for rank in range(launch.size)]
