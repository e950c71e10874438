"""One device of a simulated machine: the card, and what a process keeps for it.

For: a device's memory counters, streams, generator, context and collectives under way (`collective_work.py`). Not for: which devices
a process sees (`machine.py`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fakes.allocator import Allocator
from fakes.launch import Scheduler
from fakes.personas import Persona
from fakes.random_numbers import DeviceGenerator
from fakes.stream_state import StreamState

_RECENT_COLLECTIVES = 64


@dataclass(frozen=True)
class PhysicalCard:
    """A device of the machine, visible or not. `memory` is in bytes."""

    index: int
    uuid: str
    name: str
    memory: int


class Device:
    """One visible device, as this process uses it. `index` is its local index."""

    def __init__(
        self, persona: Persona, index: int, card: PhysicalCard, default_stream: StreamState, scheduler: Scheduler,
        allocator_settings: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.index = index
        self.card = card
        self.torch_device = torch.device(persona.device_type, index)
        self.allocator = Allocator(index, card.memory, persona.display_name, scheduler, allocator_settings)
        self.default_stream = default_stream
        self.generator: DeviceGenerator = DeviceGenerator(self.torch_device)
        self.context_open = False
        self.communication_streams: dict[tuple[str, str], StreamState] = {}
        self.idle_communication_streams: list[StreamState] = []
        self.outstanding_collectives: list[Any] = []
        self.recent_collectives: deque[Any] = deque(maxlen=_RECENT_COLLECTIVES)
        self._streams: dict[int, StreamState] = {0: self.default_stream}
        self._lock = threading.Lock()

    def new_stream(self, priority: int = 0) -> StreamState:
        """A stream that nobody else has."""
        with self._lock:
            state = StreamState(self.index, len(self._streams), priority)
            self._streams[state.id] = state
        return state

    def stream_by_id(self, stream_id: int) -> StreamState:
        """An existing stream.

        Raises:
            RuntimeError: the device has no such stream.
        """
        try:
            return self._streams[stream_id]
        except KeyError:
            raise RuntimeError(f"device {self.index} has no stream {stream_id}") from None

    @property
    def streams(self) -> tuple[StreamState, ...]:
        """Every stream made so far, the default one first."""
        return tuple(self._streams.values())
