"""Streams and events as the machine sees them.

For: what schedulers order by. Not for: the classes that users hold (`stream.py`, `event.py`).
"""

from __future__ import annotations

from typing import Any


class StreamState:
    """One queue of one device. `id` is unique on the device; 0 is the default stream."""

    __slots__ = ("__weakref__", "device_index", "id", "priority", "queue")

    def __init__(self, device_index: int, stream_id: int, priority: int = 0) -> None:
        self.device_index = device_index
        self.id = stream_id
        self.priority = priority
        self.queue: Any = None
        """The scheduler's own note of what is pending here."""

    def __repr__(self) -> str:
        return f"stream {self.id} of device {self.device_index}"


class EventState:
    """One event. `recorded_on` is the stream of its last record, None before any; `nanoseconds` is when that happened on the
    device clock."""

    __slots__ = ("__weakref__", "nanoseconds", "recorded_on", "ticket")

    def __init__(self) -> None:
        self.recorded_on: StreamState | None = None
        self.nanoseconds = 0
        self.ticket: Any = None
        """The scheduler's own note of the last record."""
