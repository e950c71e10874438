"""The store where ranks meet, kept by the process that feeds them.

For: the one thing that ranks need before they have a process group. Not for: what they keep there. A rank that dies takes nothing with it,
no rank ever polls for a key, and nothing of it is in the file system.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

STORE_TIMEOUT = timedelta(seconds=30)
"""How long a rank tries to reach the server, and waits for a key unless it says otherwise."""


def start_store(host: str) -> Any:
    """A server on a free port of `host` (an address of this host, or `0.0.0.0` for all of them); it ends with the last reference."""
    from torch._C._distributed_c10d import TCPStore

    listener = socket.create_server((host, 0))
    # PyTorch's other server listens on every address of the host.
    return TCPStore(
        host,
        listener.getsockname()[1],
        None,
        True,
        timeout=STORE_TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
        use_libuv=False,
    )


class Stores:
    """On a rank: stores on the server at `address`, each a prefix over a connection that no other store in use has, since PyTorch gives a
    timeout to connections, not to prefixes.

    Connections are used again: PyTorch asks for a name of the server at each new one, which takes seconds where a name server is slow.
    """

    def __init__(self, address: str, port: int) -> None:
        self.address = address, port
        self._connections: list[Any] = []
        self._used = 0
        self._kept: Any = None

    def begin_example(self) -> None:
        """Let go of the stores of the example before, but for the one that is kept."""
        self._used = 0

    def new(self, prefix: str) -> Any:
        """A store for this example."""
        if self._used == len(self._connections):
            self._connections.append(self._connection())
        self._used += 1
        return _below(prefix, self._connections[self._used - 1])

    def new_kept(self, prefix: str) -> Any:
        """A store until the next call of this function."""
        self._kept = self._kept or self._connection()
        return _below(prefix, self._kept)

    def _connection(self) -> Any:
        from torch._C._distributed_c10d import TCPStore

        return TCPStore(*self.address, None, False, timeout=STORE_TIMEOUT, use_libuv=False)


def _below(prefix: str, connection: Any) -> Any:
    from torch._C._distributed_c10d import PrefixStore

    connection.set_timeout(STORE_TIMEOUT)
    return PrefixStore(prefix, connection)
