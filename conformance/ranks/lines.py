"""Lines of JSON over a socket, for the control channel between rank 0 and the other processes of a launch.

For: whole messages, also where they arrive in parts. Not for: what they say (`followers.py`).
"""

from __future__ import annotations

import json
import socket
from typing import Any


class Lines:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = b""

    def fileno(self) -> int:
        """For `select`."""
        return self.connection.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        Raises:
            OSError: the other end is gone.
        """
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next message; None where the other end is gone. Blocks until it is whole."""
        while b"\n" not in self._received:
            try:
                part = self.connection.recv(1 << 16)
            except OSError:
                return None
            if not part:
                return None
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end."""
        self.connection.close()
