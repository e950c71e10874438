"""One device a rank, on hosts with real devices.

For: ranks that were started by different pools (workers of pytest-xdist, two runs at once) and must not meet on one device. A lease is a
name that a process holds in the kernel (a socket's, in Linux's abstract namespace): it ends with the process, however that ends, and leaves
no file. Not for: simulated machines, of which each rank has its own.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping

from conformance.ranks.errors import DeviceLeaseError

_HELD: list[socket.socket] = []
"""What holds the leases of this process, for as long as it lives."""


def lease_device(backend: str, count: int, first: int = 0, environment: Mapping[str, str] | None = None) -> int:
    """The local index, below `count`, of a device that no other rank on this host has; `first` is tried first, then the next ones.

    Raises:
        DeviceLeaseError: there is none.
    """
    for step in range(count):
        index = (first + step) % count
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(_name(backend, index, os.environ if environment is None else environment))
        except OSError:  # the name is taken
            holder.close()
            continue
        _HELD.append(holder)
        return index
    raise DeviceLeaseError(
        f"all {count} device(s) of {backend} are leased by other ranks on this host; give fewer --ranks or fewer workers (-n), or wait "
        "for the other run"
    )


def _name(backend: str, index: int, environment: Mapping[str, str]) -> str:
    """The name of a lease. A local index means another device under another set of visible devices, so that is part of it."""
    visible = sorted((name, value) for name, value in environment.items() if "VISIBLE_DEVICES" in name or "AFFINITY" in name)
    digest = hashlib.sha256(repr((backend, visible)).encode()).hexdigest()[:16]
    return f"\0accelerator-conformance/{os.getuid()}/{digest}/{index}"
