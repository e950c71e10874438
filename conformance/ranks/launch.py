"""Whether this process was started by PyTorch's own launcher, and as which of its ranks.

For: `torchrun … -m conformance`. Not for: what the ranks then do (`followers.py`, `torchrun_pool.py`).
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

_KEY = "accelerator-conformance/control"
_VARIABLES = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MEETING_LIMIT = timedelta(seconds=300)
"""How long the processes of a launch wait for each other at the start."""


@dataclass(frozen=True)
class Launch:
    """One process of a launch: its rank among `size`, the number of agents (hosts, as a rule), and where rank 0 is."""

    rank: int
    size: int
    agents: int
    address: str


@dataclass(frozen=True)
class Meeting:
    """Where rank 0 listens, and the word that those who come must say."""

    port: int
    token: str


def launch_of(environment: Mapping[str, str] | None = None) -> Launch | None:
    """What torchrun says of this process; None where something else started it."""
    variables = os.environ if environment is None else environment
    if not all(variables.get(name) for name in _VARIABLES):
        return None
    agents = int(variables.get("GROUP_WORLD_SIZE", "1"))
    return Launch(int(variables["RANK"]), int(variables["WORLD_SIZE"]), agents, variables["MASTER_ADDR"])


def open_meeting(launch: Launch) -> tuple[socket.socket, Meeting, Any]:
    """On rank 0: a socket that listens, announced to the others over the launcher's store, which must be kept alive."""
    listener = socket.create_server(("", 0), backlog=launch.size)
    meeting = Meeting(listener.getsockname()[1], secrets.token_hex(16))
    store = _launchers_store(launch)
    store.set(_KEY, f"{meeting.port} {meeting.token}")
    return listener, meeting, store


def find_meeting(launch: Launch) -> Meeting:
    """On another rank: where rank 0 listens."""
    port, _, token = _launchers_store(launch).get(_KEY).decode().partition(" ")
    return Meeting(int(port), token)


def _launchers_store(launch: Launch) -> Any:
    """The store that torchrun keeps, or that rank 0 keeps for it: not one of the process groups under test."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", rank=launch.rank, world_size=launch.size, timeout=MEETING_LIMIT))
    return store
