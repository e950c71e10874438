"""The process that forks ranks, from the pool's side.

For: starting it, or finding one that is shared, and ending it, with its ranks, in whatever manner the pool goes away. Not for: what it does
(`rank_server.py`) or talking to ranks (`local_pool.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance import warm_server
from conformance.ranks import rank_server
from conformance.shared_servers import connection_to, preload_request

RANK_SERVER = (sys.executable, str(Path(__file__).with_name("rank_server.py")))
"""The command that starts a server; what follows are its sockets."""
_START_LIMIT = 60.0  # seconds for the server to import torch
SHARED_SERVER = "ACCELERATOR_CONFORMANCE_RANK_SERVER"
"""The environment variable with the socket of a server that forks a server for each pool (`shared_servers.py`)."""
_PRELOADED = (
    "torch.distributed.device_mesh",
    "torch.distributed.tensor",
    "conformance.ranks.rank_main",
    "conformance.child_main",
    "conformance.backends",
    "conformance.rank_programs.collective_misuse",
    "conformance.rank_programs.process_group_failures",
    "conformance.rank_programs.process_group_reload",
    "conformance.rank_programs.process_group_watch",
    "harness.accelerator.default",
)
"""What every rank needs; importing it once is most of what starting one would take."""
_SIMULATED = (
    "autocast",
    "factories",
    "management_library",
    "namespace",
    "pinned_memory",
    "serialization",
    "torch_patches",
    "transport",
)
"""The modules of `fakes` that simulating a machine imports."""


def preloaded(*, simulated: bool) -> tuple[str, ...]:
    """The modules that every rank needs, on a simulated machine or not."""
    return (*_PRELOADED, *(f"fakes.{name}" for name in _SIMULATED)) if simulated else _PRELOADED


class RankServer:
    """One server; started by `warm_up` or the first request, again after it died, and gone after `close`."""

    def __init__(self, *, simulated: bool = False) -> None:
        self._preload = preloaded(simulated=simulated)
        self.process: subprocess.Popen[bytes] | _Forked | None = None
        self._control: socket.socket | None = None

    def warm_up(self) -> None:
        """Start the server without waiting for it."""
        if self._control is not None and (self.process is None or self.process.poll() is None):
            return
        self.close()
        ours = connection_to(os.environ.get(SHARED_SERVER, ""), socket.SOCK_SEQPACKET) or self._started()
        ours.settimeout(_START_LIMIT)
        self._control = ours
        ours.send(preload_request(self._preload))

    def start(self, ranks: Sequence[dict[str, Any]], descriptors: Sequence[int]) -> list[int]:
        """Fork ranks; their process ids."""
        self.warm_up()
        try:
            return self._asked({"start": list(ranks)}, descriptors)
        except OSError:  # it died since it was used last
            self.close()
            self.warm_up()
            return self._asked({"start": list(ranks)}, descriptors)

    def end(self, gone: Sequence[int]) -> list[int | None]:
        """End the ranks; the wait status of those that had ended by themselves. `gone` are places of ranks whose connection is closed.

        Raises:
            OSError, ValueError: there is no server any more, and so no rank.
        """
        return self._asked({"end": True, "gone": list(gone)}, ())

    def close(self) -> None:
        """End the server and its ranks."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self.process is not None:
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [*RANK_SERVER, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        return ours

    def _asked(self, request: dict[str, Any], descriptors: Sequence[int]) -> list[Any]:
        if self._control is None:
            raise ConnectionError("there is no server")
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], list(descriptors))
            data = self._control.recv(1 << 16)
        except BaseException:  # an answer that comes later must not be taken for that of the next request
            self.close()
            raise
        if not data:
            raise ConnectionError("the server is gone")
        answer: list[Any] = json.loads(data)
        return answer


class ForkedRankServer(RankServer):
    """A server that is this process, forked: for processes that have imported torch and nothing that a fork could harm."""

    def _started(self) -> socket.socket:
        if self._was_forked:
            return super()._started()
        self._was_forked = True
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = os.fork()
        if child == 0:
            try:
                ours.close()
                warm_server.end_with_the_server()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                rank_server.serve(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self.process = _Forked(child)
        return ours

    _was_forked = False


class _Forked:
    """What `RankServer` asks of a process, for one that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._is_gone = False

    def poll(self) -> int | None:
        """None while it runs."""
        if not self._is_gone:
            self._is_gone = os.waitpid(self.pid, os.WNOHANG)[0] != 0
        return 0 if self._is_gone else None

    def wait(self, timeout: float | None = None) -> None:
        """Return after it has ended.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked rank server", timeout or 0.0)
            time.sleep(0.01)

    def kill(self) -> None:
        """End it by force."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
