"""The simulated machine: physical devices, the driver that shows some of them, and what each thread has made current.

For: the state behind every simulated device. Not for: PyTorch's side of it (`dispatch.py`, `namespace.py`, `torch_patches.py`), nor
putting it in place (`installation.py`).
"""

from __future__ import annotations

import functools
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from fakes.allocator_settings import settings_at_start
from fakes.backward import Backward, follow
from fakes.device import Device, PhysicalCard
from fakes.errors import MachineNotInstalledError
from fakes.forward_streams import ForwardStreams, ThreadsOfNodes
from fakes.host_allocator import HostAllocator
from fakes.personas import Persona
from fakes.scheduling.policies import Policy
from fakes.settings import Settings, new_scheduler
from fakes.stream_state import StreamState

# Bound here, so that a fault in the adapter's reading of the variable leaves the driver's as it is.
from harness.accelerator.visible_devices import GRAMMARS, PhysicalDevice, read_visible_devices


class _ThreadState(threading.local):
    """What a thread has made current. A new thread starts on device 0 and the default streams."""

    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, StreamState] = {}
        self.generation = 0
        self.forward: ForwardStreams
        self.backward: Backward | None = None


class Machine:
    """The installed machine; made by `fakes.install`, ended by `uninstall()`.

    `cards` are its physical devices. Which of them a process sees is read from the visible-devices variable as a driver does it:
    afresh at every question until the runtime is initialised, then never again.
    """

    def __init__(self, persona: Persona, settings: Settings) -> None:
        self.persona = persona
        self.lock = threading.RLock()
        self._uninstall: Callable[[], None] | None = None
        self._thread = _ThreadState()
        self._generation = 0
        self._default_streams: dict[int, StreamState] = {}
        self._set_up(settings)

    def _set_up(self, settings: Settings) -> None:
        persona = self.persona
        self.settings = settings
        self.cards = tuple(
            PhysicalCard(index, f"{persona.uuid_prefix}{_uuid_of(persona.name, index)}", persona.device_name, memory)
            for index, memory in enumerate(settings.memories)
        )
        previous = getattr(self, "scheduler", None)
        if previous is not None:
            previous.drain()
        self.scheduler = new_scheduler(settings, self.lock)
        self.host_allocator = HostAllocator(self.scheduler)
        self.threads_of_nodes = ThreadsOfNodes()
        self._generation += 1
        self._devices: list[Device] | None = None
        self._forked = False
        self.allocator_settings = settings_at_start(persona.device_type, os.environ)
        self._pending_seeds: dict[int | None, int] = {}

    # Ending -------------------------------------------------------------------------------------------------------------------

    def reset(
        self,
        *,
        devices: int | None = None,
        memory: int | str | Sequence[int | str] | None = None,
        schedule: str | Policy | None = None,
        seed: int | None = None,
        detect_races: bool | None = None,
    ) -> None:
        """A machine as after a reboot: nothing initialised, no context, fresh counters, streams and random states.

        Settings that are not given stay as they are. Tensors made before keep their contents, but the new machine does not count
        their memory. Streams made before, which frameworks keep for good, work on; default streams stay the same.

        Raises:
            MachineConfigurationError: as `fakes.install`; the machine is then as it was.
            MachineNotInstalledError: it was uninstalled.
        """
        if self is not _current.machine:
            raise MachineNotInstalledError("this machine was uninstalled; install another with fakes.install()")
        old = self.settings
        count = len(old.memories) if devices is None else devices
        if memory is None:
            memory = old.memories if count == len(old.memories) else old.memories[0]
        settings = Settings.validated(
            count,
            memory,
            old.schedule if schedule is None else schedule,
            old.seed if seed is None else seed,
            old.detect_races if detect_races is None else detect_races,
        )
        with self.lock:
            self._set_up(settings)

    def uninstall(self) -> None:
        """Undo every change to PyTorch. The device type stays registered, without devices. Further calls do nothing."""
        if self._uninstall is not None:
            undo, self._uninstall = self._uninstall, None
            undo()

    # The driver ---------------------------------------------------------------------------------------------------------------

    @property
    def is_initialized(self) -> bool:
        """Whether this process has used the runtime."""
        return self._devices is not None

    @property
    def in_bad_fork(self) -> bool:
        """Whether this process was forked from one that had used the runtime."""
        return self._forked

    def visible_cards(self) -> tuple[PhysicalCard, ...]:
        """The cards that this process sees, in the order of their local indices."""
        if self._devices is not None:
            return tuple(device.card for device in self._devices)
        return self._read_visible_cards()

    def device_count(self) -> int:
        """The number of visible devices."""
        return len(self._devices) if self._devices is not None else len(self._read_visible_cards())

    def initialize(self) -> list[Device]:
        """Use the runtime: from now on the visible devices are frozen.

        Raises:
            RuntimeError: in a forked child of a process that had done so (FRK-1), or no device is visible.
        """
        if self._forked:
            self._refuse_fork()
        if self._devices is not None:
            return self._devices
        with self.lock:
            if self._devices is None:
                cards = self._read_visible_cards()
                if not cards:
                    raise RuntimeError(f"No {self.persona.display_name} GPUs are available")
                devices = [
                    Device(self.persona, index, card, self._default_stream(index), self.scheduler, self.allocator_settings)
                    for index, card in enumerate(cards)
                ]
                for index, seed in self._pending_seeds.items():
                    for device in devices if index is None else devices[index : index + 1]:
                        device.generator.manual_seed(seed)
                self._pending_seeds.clear()
                self._devices = devices
            return self._devices

    def _default_stream(self, index: int) -> StreamState:
        if index not in self._default_streams:
            self._default_streams[index] = StreamState(index, 0)
        return self._default_streams[index]

    def device(self, index: int) -> Device:
        """A visible device; initialises the runtime, opens no context.

        Raises:
            RuntimeError: no such device.
        """
        devices = self._devices or self.initialize()
        if not 0 <= index < len(devices):
            self._refuse_ordinal(index, len(devices))
        return devices[index]

    def open(self, index: int) -> Device:
        """A visible device with a context open on it."""
        device = self.device(index)
        device.context_open = True
        return device

    def synchronize(self, index: int) -> None:
        """Return when every stream of a device is idle, and every collective on it over."""
        device = self.open(index)
        if device.outstanding_collectives:
            from fakes import collective_work

            collective_work.finish_all(device)
        self.scheduler.synchronize_device(index)

    def use_allocator_settings(self, settings: dict[str, Any]) -> None:
        """Put allocator settings in force on every device; what is allocated stays as it is."""
        self.allocator_settings = settings
        for device in self._devices or ():
            device.allocator.settings = settings

    @property
    def open_contexts(self) -> tuple[int, ...]:
        """The local indices of the devices on which this process has a context."""
        return tuple(device.index for device in self._devices or () if device.context_open)

    def peek(self, index: int) -> Device | None:
        """A visible device if the runtime is initialised, else None; initialises nothing.

        Raises:
            RuntimeError: no such device.
        """
        if self._devices is not None:
            return self.device(index)
        count = self.device_count()
        if not 0 <= index < count:
            self._refuse_ordinal(index, count)
        return None

    def _refuse_ordinal(self, index: int, count: int) -> NoReturn:
        legal = f"0 to {count - 1}" if count else "none"
        raise RuntimeError(f"{self.persona.display_name} error: invalid device ordinal {index}; visible devices: {legal}")

    def seed(self, index: int | None, seed: int) -> None:
        """Seed one device, or all (None). Before initialisation only the latest seeds are kept."""
        if self._devices is None:
            if index is None:
                self._pending_seeds.clear()
            self._pending_seeds.pop(index, None)
            self._pending_seeds[index] = seed
            return
        for device in self.initialize() if index is None else (self.device(index),):
            device.generator.manual_seed(seed)

    def _read_visible_cards(self) -> tuple[PhysicalCard, ...]:
        grammar = self.persona.grammar
        if grammar is None:
            return self.cards
        table = tuple(PhysicalDevice(index=card.index, uuid=card.uuid) for card in self.cards)
        chosen = read_visible_devices(GRAMMARS[grammar], environment=os.environ, physical_devices=table).chosen
        if chosen is None:
            return self.cards
        return tuple(self.cards[entry.number] for entry in chosen if entry.number is not None)

    def _refuse_fork(self) -> NoReturn:
        name = self.persona.display_name
        raise RuntimeError(
            f"Cannot re-initialize {name} in forked subprocess. To use {name} with multiprocessing, you must use the 'spawn' "
            "start method"
        )

    def after_fork_in_child(self) -> None:
        """A forked child of a process that had used the runtime cannot use it."""
        if self._devices is not None:
            for device in self._devices:
                device.allocator.after_fork_in_child()
            self._forked = True
            self._devices = None

    # The calling thread -------------------------------------------------------------------------------------------------------

    def current_device(self) -> int:
        """The calling thread's current device."""
        thread = self._thread
        if thread.generation != self._generation:
            self._renew(thread)
        if thread.backward is not None:
            thread.backward.enter_node()
        return thread.device

    def set_device(self, index: int) -> None:
        """Make a device current for the calling thread.

        Raises:
            RuntimeError: no such device; the current device is then as it was.
        """
        self.device(index)
        self.current_device()
        self._thread.device = index

    def current_stream(self, index: int) -> StreamState:
        """The calling thread's current stream on a device."""
        thread = self._thread
        if thread.generation != self._generation:
            self._renew(thread)
        if thread.backward is not None:
            thread.backward.enter_node()
        return thread.streams.get(index) or self.device(index).default_stream

    def set_stream(self, stream: StreamState) -> None:
        """Make a stream current on its device for the calling thread."""
        self.current_device()
        self._thread.streams[stream.device_index] = stream
        self._thread.forward.changed(stream)

    def _renew(self, thread: _ThreadState) -> None:
        thread.device = 0
        thread.streams = {}
        with self.lock:
            thread.forward = self.threads_of_nodes.new()
        thread.generation = self._generation

    @property
    def forward_streams(self) -> ForwardStreams:
        """When the calling thread changed which current stream."""
        self.current_device()
        return self._thread.forward

    @property
    def in_backward(self) -> bool:
        """Whether the calling thread runs the autograd engine."""
        return self._thread.backward is not None

    @contextmanager
    def backward(self, roots: Iterable[Any]) -> Iterator[None]:
        """A context in which the calling thread runs the autograd engine from some roots: its operators go where the forward's went."""
        self.current_device()
        thread = self._thread
        outer, device, streams = thread.backward, thread.device, dict(thread.streams)
        thread.backward = Backward(self, thread, roots)
        try:
            yield
        finally:
            thread.backward = outer
            if thread.generation == self._generation:
                ended, thread.device, thread.streams = thread.streams, device, streams
                for index, stream in ended.items():
                    before = streams.get(index) or self.device(index).default_stream
                    if stream is not before:
                        thread.forward.changed(before)
                        follow(self.scheduler, before, stream)

    def device_index(self, device: Any = None) -> int:
        """The local index that a device names; None and a bare type mean the current device.

        Raises:
            ValueError: another type or an impossible form. The index is not checked for range.
        """
        if device is None:
            return self.current_device()
        if isinstance(device, int) and not isinstance(device, bool):
            return device
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            if device.type != self.persona.device_type:
                raise ValueError(f"Expected a {self.persona.device_type} device, but got: {device}")
            return self.current_device() if device.index is None else device.index
        if hasattr(device, "__index__") and not isinstance(device, bool):
            return int(device.__index__())
        raise ValueError(f"Expected a torch.device, a string or an integer, but got: {device!r}")


class _Current:
    """The machine of this process."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.persona_name: str | None = None


_current = _Current()


def current_machine() -> Machine:
    """The installed machine.

    Raises:
        MachineNotInstalledError: none is installed.
    """
    machine = _current.machine
    if machine is None:
        raise MachineNotInstalledError("no simulated machine is installed; call fakes.install(persona)")
    return machine


@functools.cache
def _uuid_of(persona: str, index: int) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"{index}.{persona}.simulated.invalid")
