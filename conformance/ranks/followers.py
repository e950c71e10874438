"""The processes of a launch other than the one that runs pytest: each keeps one rank and does what rank 0 says.

For: `torchrun … -m conformance`. A follower is no rank itself: it forks the rank, so that one that dies or is killed is replaced, and
torchrun, which would end the whole launch, never notices. A follower ends when rank 0 says so, with its exit code, or when rank 0 is gone.
Not for: deciding what runs (`torchrun_pool.py`).

Messages, one line of JSON each, to a follower: `{"configure": ...}`, `{"attempt": ...}`, `{"cancel": true}`, `{"end": true}`,
`{"exit": code}`; from it: `{"token", "rank"}` at first, then the answer to each attempt and end.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import sys
from typing import Any

from conformance import warm_server
from conformance.ranks import launch as launches
from conformance.ranks.launch import Launch, Meeting
from conformance.ranks.lines import Lines
from conformance.ranks.local_pool import LocalRankPool
from conformance.ranks.server import ForkedRankServer

RANK_0_IS_GONE = 1
"""A follower's exit code where rank 0 went away without a word."""
INTERRUPTED = 130
"""A follower's exit code where somebody interrupted it; rank 0 then sees that it is gone."""


def follow(launch: Launch) -> int:
    """Be a follower from start to end; the exit code."""
    server = ForkedRankServer()
    try:
        warm_server.import_torch()
        server.warm_up()
        return serve(launch, launches.find_meeting(launch), server)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's interrupt comes twice: torchrun passes it on
        sys.stderr.write(f"rank {launch.rank} was interrupted\n")
        return INTERRUPTED
    finally:
        server.close()


def fork_follower(launch: Launch, meeting: Meeting, listener: socket.socket) -> int:
    """Beside rank 0's pytest: a child process that follows with rank 0's rank; its process id."""
    child = os.fork()
    if child == 0:
        code = RANK_0_IS_GONE
        try:
            listener.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            server = ForkedRankServer()
            server.warm_up()
            code = serve(launch, meeting, server)
        finally:
            os._exit(code)
    return child


def serve(launch: Launch, meeting: Meeting, server: ForkedRankServer) -> int:
    """Do what rank 0 says until it says to exit, or is gone."""
    address = "127.0.0.1" if launch.rank == 0 else launch.address
    connection = socket.create_connection((address, meeting.port), timeout=launches.MEETING_LIMIT.total_seconds())
    connection.settimeout(None)
    rank_0 = Lines(connection)
    rank_0.send({"token": meeting.token, "rank": launch.rank})
    pool = None
    try:
        while (message := rank_0.receive()) is not None:
            if "exit" in message:
                return int(message["exit"])
            if "configure" in message:
                pool = LocalRankPool(
                    launch.size,
                    message["configure"]["backend"],
                    lease_devices=message["configure"]["lease_devices"],
                    numbers=[launch.rank],
                    store=(launch.address, message["configure"]["store_port"]),
                    server=server,
                )
            elif pool is not None:
                _answer(rank_0, pool, message)
        return RANK_0_IS_GONE
    finally:
        server.close()
        rank_0.close()


def _answer(rank_0: Lines, pool: LocalRankPool, message: dict[str, Any]) -> None:
    if "attempt" in message:
        wanted = message["attempt"]
        pool.epoch = wanted["epoch"]
        ends = pool.attempt_until(rank_0.connection, wanted["program"], wanted["timeout"], wanted["grace"], wanted["arguments"])
        rank_0.send({"attempted": wanted["number"], "end": dataclasses.asdict(ends[0])})
    elif "end" in message:
        pool.end_ranks()
        rank_0.send({"ended": True})
