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


def store_at(address: str, port: int, prefix: str) -> Any:
    """On a rank: the keys under a prefix, over a connection of its own, since PyTorch gives a timeout to connections, not to prefixes."""
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    return PrefixStore(prefix, TCPStore(address, port, None, False, timeout=STORE_TIMEOUT, use_libuv=False))
