"""One zygote and one rank server for several runs of the suite, or for all workers of one: importing torch is most of what they cost.

For: listening servers that fork a server for whoever connects, and finding one. Not for: what the servers do (`zygote_server.py`,
`ranks/rank_server.py`).
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_END_LIMIT = 20.0  # seconds for a server to end what it forked, or to import torch before that


def connection_to(path: str, kind: int) -> socket.socket | None:
    """A connection of a kind (`socket.SOCK_STREAM`, …) to the server that listens at a path; None where none does."""
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX, kind)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def preload_request(modules: Sequence[str]) -> bytes:
    """What has a server import modules before it forks."""
    return json.dumps({"preload": list(modules), "sys_path": sys.path}).encode() + b"\n"


class SharedServer:
    """A server process that listens at `path`; it imports torch and `preload` when somebody connects for the first time.

    Raises:
        OSError: no socket can be made there, for example as the path is longer than the system allows.
    """

    def __init__(self, command: Sequence[str], path: Path, kind: int, preload: Sequence[str] = ()) -> None:
        self._path = path
        with contextlib.ExitStack() as given_away:
            listener = given_away.enter_context(socket.socket(socket.AF_UNIX, kind))
            listener.bind(str(path))
            listener.listen()
            self._control, theirs = socket.socketpair(socket.AF_UNIX, kind)
            given_away.enter_context(theirs)
            descriptors = [theirs.fileno(), listener.fileno()]
            self._process = subprocess.Popen([*command, *map(str, descriptors)], pass_fds=descriptors, stdin=subprocess.DEVNULL)
        self._control.sendall(preload_request(preload))

    def close(self) -> None:
        """End it, and whatever it forked."""
        self._control.close()
        self._path.unlink(missing_ok=True)
        try:
            self._process.wait(timeout=_END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then ends what it forked
            self._process.wait()
