"""What PyTorch's Python device guard does not forward, patched in reversibly.

For: `torch.accelerator`, `torch.Stream`, `torch.Event`, `torch.Generator`, backward in the caller's thread, the profiler's activities,
and copies to a device named without an index. Not for: operators (`dispatch.py`), saving and loading (`serialization.py`), autocast
(`autocast.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.utils._device import DeviceContext, _device_constructors

from fakes import device_guard
from fakes import event as events
from fakes import stream as streams
from fakes.machine import Machine
from fakes.patching import Patches
from fakes.random_numbers import DeviceGenerator


def apply(patches: Patches, machine: Machine) -> None:
    """Patch PyTorch for an installed machine."""
    # `with torch.device(...)` recognises factories by identity, from a list that is made once: let it know the originals.
    _device_constructors()
    _patch_accelerator(patches, machine)
    _patch_backward(patches, machine)
    _patch_profiler(patches)
    _patch_constructors(patches, machine)
    _patch_tensor(patches, machine)
    _patch_lengths(patches)


def _patch_accelerator(patches: Patches, machine: Machine) -> None:
    # torch.accelerator's Python functions call these by attribute, so their own argument checks stay in force.
    def get_stream(index: int) -> streams.Stream:
        return streams.wrap(machine.current_stream(machine.device(index).index), machine)

    def set_stream(stream: Any) -> None:
        state = events._state_of(stream)
        if state is not None:
            machine.set_device(state.device_index)
            machine.set_stream(state)

    def set_device(index: int) -> None:
        if index >= 0:
            machine.set_device(index)

    def exchange(index: int) -> int:
        if index < 0:
            return -1
        machine.initialize()
        previous = machine.current_device()
        machine.set_device(index)
        return previous

    def current_index() -> int:
        machine.initialize()
        return machine.current_device()

    def empty_cache() -> None:
        for device in machine.initialize() if machine.is_initialized else ():
            device.allocator.empty_cache()

    replacements: dict[str, Callable[..., Any]] = {
        "_accelerator_getDeviceIndex": current_index,
        "_accelerator_setDeviceIndex": set_device,
        "_accelerator_exchangeDevice": exchange,
        "_accelerator_maybeExchangeDevice": exchange,
        "_accelerator_getStream": get_stream,
        "_accelerator_setStream": set_stream,
        "_accelerator_synchronizeDevice": machine.synchronize,
        "_accelerator_getDeviceCapability": lambda index: {
            "supported_dtypes": set(machine.persona.dtypes) if machine.device(index) else set()
        },
        "_accelerator_isAllocatorInitialized": lambda: machine.is_initialized,
        "_accelerator_emptyCache": empty_cache,
        "_accelerator_emptyHostCache": lambda: machine.host_allocator.empty_cache(),  # noqa: PLW0108 - a reset machine has another
        "_accelerator_getMemoryInfo": lambda index: machine.open(index).allocator.info(),
        "_accelerator_getDeviceStats": lambda index: _nested(machine.device(index).allocator.statistics()),
        "_accelerator_resetPeakStats": lambda index: machine.device(index).allocator.reset_peaks(),
        "_accelerator_resetAccumulatedStats": lambda index: machine.device(index).allocator.reset_accumulated(),
    }
    for name, replacement in replacements.items():
        feature = _FEATURE_OF.get(name)
        if hasattr(torch._C, name):
            lacks = feature is not None and feature not in machine.persona.features
            patches.set(torch._C, name, _refusing(machine, feature or "") if lacks else replacement)


_FEATURE_OF = {
    "_accelerator_getStream": "streams",
    "_accelerator_setStream": "streams",
    "_accelerator_isAllocatorInitialized": "memory",
    "_accelerator_emptyCache": "memory",
    "_accelerator_getMemoryInfo": "memory",
    "_accelerator_getDeviceStats": "memory",
    "_accelerator_resetPeakStats": "memory",
    "_accelerator_resetAccumulatedStats": "memory",
}
"""The feature without which a persona refuses."""


def _refusing(machine: Machine, feature: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> NoReturn:
        raise NotImplementedError(f"the {machine.persona.device_type} device does not support {feature}")

    return refuse


def _nested(flat: dict[str, int]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *outer, last = name.split(".")
        place = nested
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _patch_backward(patches: Patches, machine: Machine) -> None:
    from torch.autograd import graph

    original = graph._engine_run_backward

    def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
        # The engine's own threads have another current device and stream, and none for devices past the first.
        with torch.autograd.set_multithreading_enabled(False), machine.backward(roots):
            return device_guard.run_engine(original, roots, *args, **kwargs)

    patches.set(graph, "_engine_run_backward", run_backward)
    patches.set(torch.autograd, "_engine_run_backward", run_backward)


def _patch_profiler(patches: Patches) -> None:
    # PyTorch supports the activity as soon as the device has a name; here nobody would record its kernels.
    original: Any = torch.autograd._supported_activities  # type: ignore[attr-defined]
    patches.set(torch.autograd, "_supported_activities", lambda: original() - {torch.profiler.ProfilerActivity.PrivateUse1})


def _patch_constructors(patches: Patches, machine: Machine) -> None:
    original_generator: Any = torch.Generator
    original_stream: Any = streams._TorchStream
    original_event: Any = events._TorchEvent

    class GeneratorType(type(original_generator)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original_generator)

        def __call__(cls, device: Any = "cpu") -> Any:
            if not _is_ours(device, machine):
                return original_generator(device=device)
            return DeviceGenerator(machine.device(machine.device_index(torch.device(device))).torch_device)

    class StreamType(type(original_stream)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original_stream)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device", args[0] if args else None)
            if device is None or _is_ours(device, machine):
                return streams.Stream(*args, **kwargs)
            return original_stream(*args, **kwargs)

    class EventType(type(original_event)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original_event)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device", args[0] if args else None)
            if device is None or isinstance(device, bool) or _is_ours(device, machine):
                return events.Event(*args, **kwargs)
            return original_event(*args, **kwargs)

    for name, kind, original, feature in (
        ("Generator", GeneratorType, original_generator, "rng"),
        ("Stream", StreamType, original_stream, "streams"),
        ("Event", EventType, original_event, "events"),
    ):
        if feature not in machine.persona.features:
            kind = _refusing_type(machine, kind, feature)  # noqa: PLW2901 - the same class, for this device's own calls
        patches.set(torch, name, kind(name, (), {"__doc__": original.__doc__, "__module__": "torch"}))


def _refusing_type(machine: Machine, kind: Any, feature: str) -> Any:
    """A class like `kind` that refuses to be made for this device."""
    refuse = _refusing(machine, feature)

    class RefusingType(kind):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - a metaclass
            device = kwargs.get("device", args[0] if args else None)
            if (device is None and feature != "rng") or (device is not None and _is_ours(device, machine)):
                refuse()
            return super().__call__(*args, **kwargs)

    return RefusingType


def _is_ours(device: Any, machine: Machine) -> bool:
    if isinstance(device, int) and not isinstance(device, bool):
        return True
    return isinstance(device, str | torch.device) and torch.device(device).type == machine.persona.device_type


def _patch_tensor(patches: Patches, machine: Machine) -> None:
    kind = machine.persona.device_type
    original_to: Any = torch.Tensor.to
    bare = torch.device(kind)

    # PyTorch asks its device guard for the index of a bare device type, and a Python guard always answers 0.

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args and (args[0] == kind or args[0] == bare):
            args = (torch.device(kind, machine.current_device()), *args[1:])
        elif kwargs and (kwargs.get("device") == kind or kwargs.get("device") == bare):
            kwargs["device"] = torch.device(kind, machine.current_device())
        result: torch.Tensor = original_to(self, *args, **kwargs)
        return result

    def indexed(factory: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(factory)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs and (kwargs.get("device") == kind or kwargs.get("device") == bare):
                kwargs["device"] = torch.device(kind, machine.current_device())
            return factory(*args, **kwargs)

        return call

    in_context: Any = DeviceContext.__torch_function__

    def in_device_context(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.device == bare and func in _device_constructors() and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": torch.device(kind, machine.current_device())}
        return in_context(self, func, types, args, kwargs)

    patches.set(torch.Tensor, "to", to)
    for name in ("tensor", "as_tensor", "asarray"):
        patches.set(torch, name, indexed(getattr(torch, name)))
    patches.set(torch.Tensor, "new_tensor", indexed(torch.Tensor.new_tensor))
    patches.set(DeviceContext, "__torch_function__", in_device_context)


def _patch_lengths(patches: Patches) -> None:
    original: Any = torch.ctc_loss

    @functools.wraps(original)
    def ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, **kwargs: Any) -> Any:
        # Lengths on the host go with any device; for a subclass of tensors PyTorch would divide by them there.
        lengths = [
            one.tolist() if isinstance(one, torch.Tensor) and one.device.type == "cpu" else one
            for one in (input_lengths, target_lengths)
        ]
        return original(log_probs, targets, *lengths, *args, **kwargs)

    patches.set(torch, "ctc_loss", ctc_loss)
