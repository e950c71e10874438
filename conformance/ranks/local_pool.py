"""Ranks on this host, forked once from a warm process and fed with examples.

For: thousands of small examples on real ranks. Not for: ranks on other hosts. Every pool has a server, ranks and a store of its own, so
that workers of pytest-xdist do not meet; when the pool's process goes away in whatever manner, the server ends the ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from conformance.backends import FAKE_PREFIX
from conformance.ranks.pool import DIED, RAISED, STALLED, USUAL_GRACE, VALUE, RankEnd, RankPool, program_path
from conformance.ranks.server import SIMULATED, RankServer
from conformance.ranks.store_server import start_store

_STACK_LIMIT = 2.0  # seconds for a stalled rank to write its stack
_LOG_LINES = 15
_THIS_HOST = "127.0.0.1"
_STACK_HEADS = ("Thread 0x", "Current thread 0x")


class _Rank:
    """The pool's side of one rank."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.connection, self.theirs = socket.socketpair()
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the rank
        self.operation: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = 0
        self.received = b""

    def descriptors(self) -> list[int]:
        return [self.theirs.fileno(), self.log.fileno(), self.operation.fileno()]

    def close(self) -> None:
        for resource in (self.connection, self.theirs, self.log, self.operation):
            resource.close()

    def text_of_log(self) -> str:
        return os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")

    def text_of_operation(self) -> str:
        return os.pread(self.operation.fileno(), 4096, 0).decode(errors="replace").strip("\0 ")


class LocalRankPool(RankPool):
    """`size` ranks on this host for a backend (the data of a `BackendChoice`), started at the first example.

    With `lease_devices`, each rank has a device of this host to itself; otherwise rank r has device r.

    A part of a larger pool has only the ranks `numbers` of its `size`, and the address of the `store` server where all of them meet;
    `epoch`, which is equal in all parts, counts how often the ranks were started.
    """

    def __init__(
        self,
        size: int,
        backend: Mapping[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        lease_devices: bool = False,
        numbers: Sequence[int] | None = None,
        store: tuple[str, int] | None = None,
        server: RankServer | None = None,
    ) -> None:
        self.size = size
        self.epoch = 0
        self._numbers = list(range(size)) if numbers is None else list(numbers)
        self._common = {
            "size": size,
            "backend": dict(backend),
            "environment": dict(environment or {}),
            "lease_devices": lease_devices,
            "store": store,
        }
        simulated = str(backend["backend"]).startswith(FAKE_PREFIX)
        self.server = server or RankServer([f"fakes.{name}" for name in SIMULATED] if simulated else ())
        self._store: Any = None
        self._ranks: list[_Rank] = []

    def warm_up(self) -> None:
        """See `RankPool.warm_up`."""
        self.server.warm_up()

    def attempt(
        self, program: str | Callable[..., Any], *, timeout: float = 30.0, grace: float = USUAL_GRACE, **arguments: Any
    ) -> list[RankEnd]:
        """See `RankPool.attempt`."""
        return self.attempt_until(None, program, timeout, grace, arguments)

    def attempt_until(
        self,
        cancel: socket.socket | None,
        program: str | Callable[..., Any],
        timeout: float,
        grace: float,
        arguments: Mapping[str, Any],
    ) -> list[RankEnd]:
        """As `attempt`; ranks that have not answered when something arrives at `cancel` have stalled."""
        if not self._ranks:
            self._start_ranks()
        line = json.dumps({"program": program_path(program), "arguments": arguments}).encode() + b"\n"
        for rank in self._ranks:
            with contextlib.suppress(OSError):  # a rank that is gone is found when its answer is due
                rank.connection.sendall(line)
        answers = self._collect(timeout, grace, cancel)
        if len(answers) == len(self._ranks) and all(answer["how"] == VALUE for answer in answers.values()):
            return [RankEnd(rank.number, VALUE, answers[rank.number]["value"]) for rank in self._ranks]
        return self._end_ranks(answers)

    def end_ranks(self) -> None:
        """End the ranks alone, so that the next example gets new ones."""
        if self._ranks:
            self._statuses({})
            self._forget_ranks()

    def close(self) -> None:
        """See `RankPool.close`."""
        self.server.close()
        self._forget_ranks()

    def _start_ranks(self) -> None:
        if self._common["store"] is None:
            self._store = start_store(_THIS_HOST)
        self._ranks = [_Rank(number) for number in self._numbers]
        store = self._common["store"] or (_THIS_HOST, self._store.port)
        common = {**self._common, "store": store, "epoch": self.epoch, "sys_path": sys.path, "directory": os.getcwd()}
        requests = [{**common, "rank": rank.number} for rank in self._ranks]
        processes = self.server.start(requests, [number for rank in self._ranks for number in rank.descriptors()])
        for rank, process in zip(self._ranks, processes, strict=True):
            rank.process = process
            rank.theirs.close()

    def _collect(self, timeout: float, grace: float, cancel: socket.socket | None) -> dict[int, dict[str, Any]]:
        """The ranks' answers by rank; a rank that went away is `died`, one that is late is missing."""
        watched = [] if cancel is None else [cancel.fileno()]
        deadline = time.monotonic() + timeout
        waiting = {rank.connection.fileno(): rank for rank in self._ranks}
        answers: dict[int, dict[str, Any]] = {}
        while waiting:
            ready, _, _ = select.select([*waiting, *watched], [], [], max(0.0, deadline - time.monotonic()))
            if not ready or set(ready) & set(watched):
                break
            for descriptor in ready:
                rank = waiting[descriptor]
                answer = self._received(rank)
                if answer is None:
                    continue
                answers[rank.number] = answer
                del waiting[descriptor]
                if answer["how"] != VALUE:
                    deadline = min(deadline, time.monotonic() + grace)
        return answers

    @staticmethod
    def _received(rank: _Rank) -> dict[str, Any] | None:
        """The rank's answer, once it is whole."""
        try:
            part = rank.connection.recv(1 << 16)
        except OSError:
            part = b""
        if not part:
            return {"how": DIED}
        rank.received += part
        if not rank.received.endswith(b"\n"):
            return None
        answer: dict[str, Any] = json.loads(rank.received)
        rank.received = b""
        return answer

    def _end_ranks(self, answers: dict[int, dict[str, Any]]) -> list[RankEnd]:
        """How each rank ended; afterwards there are none."""
        stacks = self._stacks([rank for rank in self._ranks if rank.number not in answers])
        ends = []
        for rank, status in zip(self._ranks, self._statuses(answers), strict=True):
            answer = answers.get(rank.number, {"how": STALLED})
            if answer["how"] == VALUE:
                ends.append(RankEnd(rank.number, VALUE, answer["value"]))
                continue
            ends.append(
                RankEnd(
                    rank.number,
                    answer["how"],
                    text=answer.get("text", "") if answer["how"] == RAISED else _cause_of_death(answer["how"], status),
                    error=answer.get("error", ""),
                    message=answer.get("message", ""),
                    operation=rank.text_of_operation(),
                    stack=stacks.get(rank.number, ""),
                    log=_last_lines(rank.text_of_log()),
                )
            )
        self._forget_ranks()
        return ends

    def _statuses(self, answers: dict[int, dict[str, Any]]) -> list[int | None]:
        """End the ranks; the wait status of those that had ended by themselves. Without its server a rank is gone already."""
        try:
            gone = [place for place, rank in enumerate(self._ranks) if answers.get(rank.number, {}).get("how") == DIED]
            return self.server.end(gone)
        except (OSError, ValueError):
            self.server.close()
            return [None] * len(self._ranks)

    @staticmethod
    def _stacks(late: list[_Rank]) -> dict[int, str]:
        """The Python stacks of ranks that have not answered, which each writes to its log on a signal."""
        starts = {rank.number: len(rank.text_of_log()) for rank in late}
        for rank in late:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.process, signal.SIGUSR1)
        deadline = time.monotonic() + _STACK_LIMIT
        stacks: dict[int, str] = {}
        while len(stacks) < len(late) and time.monotonic() < deadline:
            for rank in late:
                written = rank.text_of_log()[starts[rank.number] :]
                if written.endswith("\n") and any(head in written for head in _STACK_HEADS):
                    stacks[rank.number] = written
            select.select([], [], [], 0.01)
        return stacks

    def _forget_ranks(self) -> None:
        for rank in self._ranks:
            rank.close()
        self._ranks = []
        self._store = None


def _cause_of_death(how: str, status: int | None) -> str:
    if how != DIED or status is None:
        return "" if how != DIED else "it closed its connection"
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"status {os.WEXITSTATUS(status)}"


def _last_lines(log: str) -> str:
    kept = log[: min((log.find(head) for head in _STACK_HEADS if head in log), default=len(log))]
    return "\n".join(kept.splitlines()[-_LOG_LINES:])
