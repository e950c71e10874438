"""Ranks on this host, forked once from a warm process and fed with examples.

For: thousands of small examples on real ranks. Not for: ranks on other hosts. Every pool has a server, ranks and a store of its own, so
that workers of pytest-xdist do not meet; when the pool's process goes away in whatever manner, the server ends the ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from conformance.backends import FAKE_PREFIX
from conformance.ranks.pool import DIED, STALLED, USUAL_GRACE, VALUE, RankEnd, RankPool, program_path
from conformance.ranks.server import RankServer
from conformance.ranks.store_server import start_store

_STACK_LIMIT = 2.0  # seconds for a stalled rank to write its stack
_LOG_LINES = 15
_LOG_BYTES = 1 << 16
_THIS_HOST = "127.0.0.1"
_STACK = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ [^\n]*\(most recent call first\):\n(?:  [^\n]*\n)*\n?")
"""What `faulthandler` writes of a thread, on a signal or as the process dies of one."""


class _Rank:
    """The pool's side of one rank."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.connection, self.theirs = socket.socketpair()
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the rank
        self.operation: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = 0
        self.received = bytearray()
        self._example_log = 0

    def descriptors(self) -> list[int]:
        return [self.theirs.fileno(), self.log.fileno(), self.operation.fileno()]

    def close(self) -> None:
        for resource in (self.connection, self.theirs, self.log, self.operation):
            resource.close()

    def begin_example(self) -> None:
        """What the log has until here is of earlier examples."""
        self._example_log = self.size_of_log()

    def size_of_log(self) -> int:
        return os.fstat(self.log.fileno()).st_size

    def text_of_log(self) -> str:
        """The end of what this example wrote."""
        start = max(self._example_log, self.size_of_log() - _LOG_BYTES)
        return os.pread(self.log.fileno(), _LOG_BYTES, start).decode(errors="replace")

    def stack_since(self, start: int) -> str:
        """The Python stacks that were written to the log from a size of it on."""
        return "".join(_STACK.findall(os.pread(self.log.fileno(), _LOG_BYTES, start).decode(errors="replace")))

    def is_stopped(self) -> bool:
        """Whether a signal stopped the process, so that it can answer nothing; where the system says so."""
        try:
            with open(f"/proc/{self.process}/stat", errors="replace") as stat:
                return stat.read().rpartition(")")[2].split()[0] == "T"
        except OSError:
            return False

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
        self.server = server or RankServer(simulated=simulated)
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
        try:
            for rank in self._ranks:
                rank.connection.settimeout(timeout)
                with contextlib.suppress(OSError):  # a rank that is gone or stopped is found when its answer is due
                    rank.connection.sendall(line)
            answers = self._collect(timeout, grace, cancel)
        except BaseException:  # of a signal handler, say: what these ranks answer later must not be taken for the next example's
            self.end_ranks()
            raise
        if len(answers) == len(self._ranks) and all(answer["how"] == VALUE for answer in answers.values()):
            for rank in self._ranks:
                rank.begin_example()
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
        ranks = [_Rank(number) for number in self._numbers]
        store = self._common["store"] or (_THIS_HOST, self._store.port)
        common = {**self._common, "store": store, "epoch": self.epoch, "sys_path": sys.path, "directory": os.getcwd()}
        requests = [{**common, "rank": rank.number} for rank in ranks]
        try:
            processes = self.server.start(requests, [number for rank in ranks for number in rank.descriptors()])
        except BaseException:
            for rank in ranks:
                rank.close()
            raise
        for rank, process in zip(ranks, processes, strict=True):
            rank.process = process
            rank.theirs.close()
        self._ranks = ranks

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
        rank.received.clear()
        return answer

    def _end_ranks(self, answers: dict[int, dict[str, Any]]) -> list[RankEnd]:
        """How each rank ended; afterwards there are none."""
        late = [rank for rank in self._ranks if rank.number not in answers]
        stopped = [rank.number for rank in late if rank.is_stopped()]
        stacks = self._stacks(late)
        ends = []
        for rank, status in zip(self._ranks, self._statuses(answers), strict=True):
            answer = answers.get(rank.number, {"how": STALLED})
            if answer["how"] == VALUE:
                ends.append(RankEnd(rank.number, VALUE, answer["value"]))
                continue
            how, text, stack = answer["how"], answer.get("text", ""), stacks.get(rank.number, "")
            log = rank.text_of_log()
            if how == STALLED and _died_by_itself(status):  # a process that it forked has kept its connection open
                how = DIED
            if how == DIED:
                text, stack = _cause_of_death(status), "".join(_STACK.findall(log))
            elif rank.number in stopped:
                text = "a signal, such as SIGSTOP, had stopped it"
            ends.append(
                RankEnd(
                    rank.number,
                    how,
                    text=text,
                    error=answer.get("error", ""),
                    message=answer.get("message", ""),
                    operation=rank.text_of_operation(),
                    stack=stack,
                    log="\n".join(_STACK.sub("", log).splitlines()[-_LOG_LINES:]),
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
        starts = {rank.number: rank.size_of_log() for rank in late}
        for rank in late:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.process, signal.SIGUSR1)
                os.kill(rank.process, signal.SIGCONT)  # one that was stopped writes its stack before it goes on
        deadline = time.monotonic() + _STACK_LIMIT
        stacks: dict[int, str] = {}
        while len(stacks) < len(late) and time.monotonic() < deadline:
            for rank in late:
                written = rank.stack_since(starts[rank.number])
                if written.endswith("\n"):
                    stacks[rank.number] = written
            select.select([], [], [], 0.01)
        return stacks

    def _forget_ranks(self) -> None:
        for rank in self._ranks:
            rank.close()
        self._ranks = []
        self._store = None


def _died_by_itself(status: int | None) -> bool:
    """Whether a late rank had ended before it was asked for its stack; one that had not begun yet dies of the question."""
    return status is not None and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGUSR1)


def _cause_of_death(status: int | None) -> str:
    if status is None:
        return "it closed its connection"
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"status {os.WEXITSTATUS(status)}"
