"""The namespace `torch.<type>` of a simulated device: devices, streams and events.

For: the functions that CUDA-style code calls, under their usual names. Not for: memory (`namespace_memory.py`) and random numbers
(`namespace_random.py`), which `build` adds. Functions that only ask neither initialise the runtime nor open a context, except where
PyTorch's own do, as said.
"""

from __future__ import annotations

import sys
from types import ModuleType, TracebackType
from typing import Any

import torch

from fakes import event as events
from fakes import namespace_memory, namespace_random
from fakes import stream as streams
from fakes.machine import _current as current
from fakes.machine import current_machine
from fakes.personas import Persona


class DeviceProperties:
    """What a device says of itself. `total_memory` is in bytes."""

    def __init__(self, persona: Persona, name: str, uuid: str, total_memory: int) -> None:
        self.name = name
        self.uuid = uuid
        self.total_memory = total_memory
        self.major, self.minor = persona.compute_capability
        self.multi_processor_count = persona.compute_units
        self.is_integrated = False
        self.is_multi_gpu_board = False
        self.warp_size = 32

    def __repr__(self) -> str:
        return (
            f"_DeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, uuid={self.uuid})"
        )


def _get_device_index(device: Any, optional: Any = False, allow_cpu: Any = False) -> int:
    """The local index that a device names, as PyTorch's own helpers of this name.

    Raises:
        ValueError: another type; or no index where `optional` is false.
    """
    machine = current_machine()
    named: Any = torch.device(device) if isinstance(device, str) else device
    if isinstance(named, torch.device):
        if allow_cpu and named.type == "cpu":
            return -1
        index: Any = named.index
        if index is None and not optional and named.type == machine.persona.device_type:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    if device is None and not optional:
        raise ValueError("Expected a torch.device with a specified index or an integer, but got:None")
    return machine.device_index(named)


# Devices -------------------------------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether a device is visible. Initialises nothing."""
    return device_count() > 0


def device_count() -> int:
    """The number of visible devices: read afresh until the runtime is initialised, then frozen."""
    machine = current.machine
    return 0 if machine is None or machine.in_bad_fork else machine.device_count()


def init() -> None:
    """Initialise the runtime. Opens no context."""
    current_machine().initialize()


def is_initialized() -> bool:
    """Whether the runtime is initialised."""
    machine = current.machine
    return machine is not None and machine.is_initialized


def _is_in_bad_fork() -> bool:
    machine = current.machine
    return machine is not None and machine.in_bad_fork


def current_device() -> int:
    """The calling thread's current device. Initialises the runtime, opens no context."""
    machine = current_machine()
    machine.initialize()
    return machine.current_device()


def set_device(device: Any) -> None:
    """Make a device current for the calling thread; a negative index does nothing. Opens no context."""
    index = _get_device_index(device)
    if index >= 0:
        current_machine().set_device(index)


def _exchange_device(index: int) -> int:
    if index < 0:
        return -1
    previous = current_device()
    current_machine().set_device(index)
    return previous


def _maybe_exchange_device(index: int) -> int:
    return _exchange_device(index)


class device:  # noqa: N801 - the name that PyTorch's namespaces use
    """A context in which a device is current; an index below zero or None changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = _get_device_index(device, optional=True) if device is not None else -1
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        _maybe_exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801
    """A context in which a tensor's device is current; nothing changes for a tensor on another type of device."""

    def __init__(self, obj: Any) -> None:
        on_device = obj.device.type == current_machine().persona.device_type
        super().__init__(obj.device.index if on_device else None)


def synchronize(device: Any = None) -> None:
    """Return when every stream of a device is idle. Opens its context."""
    machine = current_machine()
    machine.synchronize(_get_device_index(device, optional=True))


def get_device_properties(device: Any = None) -> DeviceProperties:
    """The properties of a device. Initialises the runtime, opens no context."""
    machine = current_machine()
    card = machine.device(_get_device_index(device, optional=True)).card
    return DeviceProperties(machine.persona, card.name, card.uuid.removeprefix(machine.persona.uuid_prefix), card.memory)


def get_device_name(device: Any = None) -> str:
    """The name of a device."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a device."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether two devices can copy to each other; all of one machine can."""
    machine = current_machine()
    first, second = machine.device(_get_device_index(device)), machine.device(_get_device_index(peer_device))
    return first is not second


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes in bfloat16."""
    del including_emulation
    return torch.bfloat16 in current_machine().persona.dtypes


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that autocast may use; PyTorch asks for them."""
    return list(current_machine().persona.autocast_dtypes)


# Streams -------------------------------------------------------------------------------------------------------------------------


class StreamContext:
    """A context in which a stream and its device are current; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self.stream is not None:
            self.stream.__exit__(kind, error, traceback)


def stream(stream: Any) -> StreamContext:
    """A context in which a stream and its device are current."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> streams.Stream:
    """The calling thread's current stream on a device, whichever device is current."""
    machine = current_machine()
    opened = machine.device(_get_device_index(device, optional=True))
    return streams.wrap(machine.current_stream(opened.index), machine)


def default_stream(device: Any = None) -> streams.Stream:
    """The default stream of a device."""
    machine = current_machine()
    return streams.wrap(machine.device(_get_device_index(device, optional=True)).default_stream, machine)


def set_stream(stream: Any) -> None:
    """Make a stream and its device current for the calling thread."""
    if stream is not None:
        machine = current_machine()
        machine.set_device(stream.state.device_index)
        machine.set_stream(stream.state)


def _sleep(cycles: int) -> None:
    """Keep the current stream busy for a number of device cycles."""
    machine = current_machine()
    index = machine.open(machine.current_device()).index
    machine.scheduler.sleep(int(cycles), machine.current_stream(index))


# The module ----------------------------------------------------------------------------------------------------------------------

_DEVICE_NAMES = (
    "_exchange_device",
    "_get_device_index",
    "_is_in_bad_fork",
    "_maybe_exchange_device",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "init",
    "is_available",
    "is_initialized",
    "is_bf16_supported",
    "set_device",
    "synchronize",
)
_STREAM_NAMES = ("StreamContext", "_sleep", "current_stream", "default_stream", "set_stream", "stream")


class _Namespace(ModuleType):
    @property
    def _initialized(self) -> bool:
        """What activation checkpointing asks for before it keeps the random state."""
        return is_initialized()


def build(persona: Persona) -> ModuleType:
    """The namespace of a persona, with the parts that its features name."""
    name = f"torch.{persona.device_type}"
    module = _Namespace(name, f"The namespace of the simulated {persona.display_name} device.")
    module.__path__ = []
    here = sys.modules[__name__]
    _fill(module, here, _DEVICE_NAMES)
    module.__dict__["_lazy_init"] = init
    _submodule(module, "_utils", {"_get_device_index": _get_device_index})
    if "properties" in persona.features:
        _fill(module, here, ("DeviceProperties", "get_device_capability", "get_device_name", "get_device_properties"))
    if "streams" in persona.features:
        _fill(module, here, _STREAM_NAMES)
        module.__dict__["Stream"] = streams.Stream
    if "events" in persona.features:
        module.__dict__["Event"] = events.Event
    if "streams" in persona.features or "events" in persona.features:
        members: dict[str, Any] = {kind: module.__dict__[kind] for kind in ("Stream", "Event") if kind in module.__dict__}
        _submodule(module, "streams", members)
    if "memory" in persona.features:
        members = {name: getattr(namespace_memory, name) for name in namespace_memory.NAMES}
        module.__dict__.update({name: value for name, value in members.items() if not name.startswith("_")})
        module.__dict__["OutOfMemoryError"] = torch.OutOfMemoryError
        _submodule(module, "memory", members)
        attach = {f"_{persona.device_type}_attach_out_of_memory_observer": namespace_memory.attach_out_of_memory_observer}
        _submodule(module, persona.extension_module, attach)
    if "rng" in persona.features:
        members = {name: getattr(namespace_random, name) for name in namespace_random.NAMES}
        module.__dict__.update(members)
        _submodule(module, "random", members)
    if "amp" in persona.features:
        module.__dict__["get_amp_supported_dtype"] = get_amp_supported_dtype
        _submodule(module, "amp", _amp_members(persona.device_type))
    return module


def _fill(module: ModuleType, source: ModuleType, names: tuple[str, ...]) -> None:
    module.__dict__.update({name: getattr(source, name) for name in names})


def _submodule(module: ModuleType, name: str, members: dict[str, Any]) -> None:
    submodule = ModuleType(f"{module.__name__}.{name}")
    submodule.__dict__.update(members)
    module.__dict__[name] = submodule


def _amp_members(device_type: str) -> dict[str, Any]:
    class autocast(torch.autocast):  # noqa: N801
        """`torch.autocast` for this device type."""

        def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool | None = None) -> None:
            super().__init__(device_type, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    class GradScaler(torch.amp.GradScaler):
        """`torch.amp.GradScaler` for this device type."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(device_type, *args, **kwargs)

    return {"autocast": autocast, "GradScaler": GradScaler}
