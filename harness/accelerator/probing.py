"""How a delegating backend answers for each capability (CAP-1 to CAP-4).

For: one probe a capability, with evidence in words; only those whose `needs_device` is true touch the device. Not for: proving
that what is declared works; the suite does that (CAP-2)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from harness.accelerator.capabilities import Capability, CapabilityEvidence

if TYPE_CHECKING:
    from harness.accelerator.torch_namespace import TorchNamespaceAccelerator

# PyTorch refuses a device that it was not built for by an assertion, and one whose package is missing by an import error.
_REFUSALS = (RuntimeError, TypeError, ImportError, AssertionError)

Probe = Callable[["TorchNamespaceAccelerator"], CapabilityEvidence]

NEEDED_FUNCTIONS: Mapping[Capability, tuple[str, ...]] = {
    Capability.STREAMS: ("Stream", "current_stream", "stream"),
    Capability.EVENTS: ("Event",),
    Capability.RNG: ("get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all", "initial_seed"),
    Capability.DEVICE_MEMORY: ("empty_cache", "mem_get_info", "memory_allocated", "memory_reserved"),
    Capability.PEAK_MEMORY: ("max_memory_allocated", "max_memory_reserved", "reset_peak_memory_stats"),
    Capability.DEVICE_PROPERTIES: ("get_device_properties",),
}
"""Capabilities that are there where these functions are."""


def probe(accelerator: TorchNamespaceAccelerator, capability: Capability) -> CapabilityEvidence:
    """The backend's answer; see `Accelerator.probe`."""
    declared = accelerator.declarations.get(capability)
    if declared is not None:
        return declared
    if capability.is_hint:
        return CapabilityEvidence(False, f"{accelerator.name} makes no claim of {capability.value}")
    if capability in NEEDED_FUNCTIONS:
        return _functions(accelerator, NEEDED_FUNCTIONS[capability])
    return _PROBES[capability](accelerator)


def _functions(accelerator: TorchNamespaceAccelerator, names: tuple[str, ...]) -> CapabilityEvidence:
    missing = [name for name in names if accelerator._find(name) is None]
    if missing:
        return CapabilityEvidence(False, f"{accelerator.where_functions_are} has no {', '.join(missing)}")
    return CapabilityEvidence(True, f"{accelerator.where_functions_are} has {', '.join(names)}")


def _amp(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    dtypes = accelerator.autocast_dtypes()
    if dtypes:
        return CapabilityEvidence(True, f"torch.autocast knows {accelerator.device_type}, with {_listed(dtypes)}")
    return CapabilityEvidence(False, f"torch.autocast knows no dtype for {accelerator.device_type}")


def _bf16(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    check = accelerator._find("is_bf16_supported")
    if check is not None:
        accelerator._enter_runtime()
        answer = bool(check())
        return CapabilityEvidence(answer, f"is_bf16_supported() of {accelerator.where_functions_are} says {answer}")
    device = accelerator.device()
    accelerator._enter_runtime()
    try:
        total = torch.ones(2, dtype=torch.bfloat16, device=device).sum().item()
    except _REFUSALS as error:
        return CapabilityEvidence(False, f"a bfloat16 sum on {device} raised {_shown(error)}")
    return CapabilityEvidence(total == 2, f"1 + 1 in bfloat16 on {device} is {total}")


def _fp16(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    dtypes = accelerator.autocast_dtypes()
    answer = torch.float16 in dtypes
    return CapabilityEvidence(answer, f"autocast on {accelerator.device_type} takes {_listed(dtypes) or 'no dtype'}")


def _event_timing(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    constructor = accelerator.Event
    if constructor is None:
        return CapabilityEvidence(False, f"{accelerator.where_functions_are} has no Event")
    try:
        constructor(enable_timing=True)
    except _REFUSALS as error:
        return CapabilityEvidence(False, f"Event(enable_timing=True) raised {_shown(error)}")
    return CapabilityEvidence(True, "Event(enable_timing=True) is accepted")


def _device_generator(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    device = accelerator.device()
    accelerator._enter_runtime()
    try:
        actual = torch.Generator(device=device).device
    except _REFUSALS as error:
        return CapabilityEvidence(False, f"torch.Generator(device={str(device)!r}) raised {_shown(error)}")
    return CapabilityEvidence(actual == device, f"torch.Generator(device={str(device)!r}) is on {actual}")


def _oom_observer(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    if accelerator._oom_attach_function() is None:
        looked = ", ".join((accelerator.where_functions_are, *accelerator.oom_observer_owners))
        return CapabilityEvidence(False, f"no function that attaches an out-of-memory observer in {looked}")
    return CapabilityEvidence(True, "the function that attaches an out-of-memory observer exists")


def _memory_snapshot(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    memory = accelerator.memory_module()
    missing = [name for name in ("_record_memory_history", "_snapshot") if not hasattr(memory, name)]
    if missing:
        return CapabilityEvidence(False, f"the memory namespace of {accelerator.device_type} has no {', '.join(missing)}")
    return CapabilityEvidence(True, f"the memory namespace of {accelerator.device_type} records and takes snapshots")


def _memory_pause(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    for module in accelerator.memory_pause_modules:
        if importlib.util.find_spec(module) is not None:
            return CapabilityEvidence(True, f"{module}, which pauses {accelerator.device_type} memory, is installed")
    known = ", ".join(accelerator.memory_pause_modules) or "no package"
    return CapabilityEvidence(False, f"{known} that pauses {accelerator.device_type} memory is installed")


def _pinned_memory(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    if not accelerator.is_current_accelerator():
        return CapabilityEvidence(
            False, f"torch pins for {torch.accelerator.current_accelerator()}, not for {accelerator.device_type}"
        )
    accelerator._enter_runtime()
    try:
        pinned = torch.ones(1).pin_memory().is_pinned()
    except _REFUSALS as error:
        return CapabilityEvidence(False, f"pin_memory() raised {_shown(error)}")
    return CapabilityEvidence(pinned, f"after pin_memory(), is_pinned() is {pinned}")


def _device_profiler(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    activities = torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
    names = {str(activity).rpartition(".")[2].upper() for activity in activities}
    wanted = {accelerator.device_type.upper()}
    if accelerator.device_type == torch._C._get_privateuse1_backend_name():
        wanted.add("PRIVATEUSE1")
    found = wanted & names
    if accelerator.device_type == "cpu" or not found:
        return CapabilityEvidence(False, f"the profiler supports {', '.join(sorted(names))} here, no device activity of its own")
    return CapabilityEvidence(True, f"the profiler supports the activity {found.pop()}")


def _graphs(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    namespace = accelerator.accelerator_module()
    classes = [name for name in dir(namespace) if name.endswith("Graph")]
    if classes and accelerator._find("graph") is not None:
        return CapabilityEvidence(True, f"torch.{accelerator.device_type} has {classes[0]} and graph")
    return CapabilityEvidence(False, f"torch.{accelerator.device_type} has no graph class with a capture context")


def _ipc(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    names = [f"_share_{accelerator.device_type}_", f"_share_fd_{accelerator.device_type}_"]
    found = [name for name in names if hasattr(torch.UntypedStorage, name)]
    if found:
        return CapabilityEvidence(True, f"torch.UntypedStorage has {found[0]}")
    return CapabilityEvidence(False, f"torch.UntypedStorage has no {names[0]}, so a storage cannot be handed to another process")


def _fork_after_selection(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    devices = accelerator.physical_devices()
    if devices is None:
        return CapabilityEvidence(False, f"no management library counts {accelerator.device_type} devices without their runtime")
    return CapabilityEvidence(True, f"a management library counts {len(devices)} {accelerator.device_type} devices")


def _undeclared(accelerator: TorchNamespaceAccelerator) -> CapabilityEvidence:
    return CapabilityEvidence(False, f"the backend {accelerator.name} does not declare it")


_PROBES: Mapping[Capability, Probe] = {
    Capability.AMP: _amp,
    Capability.BF16: _bf16,
    Capability.FP16: _fp16,
    Capability.EVENT_TIMING: _event_timing,
    Capability.DEVICE_GENERATOR: _device_generator,
    Capability.OOM_OBSERVER: _oom_observer,
    Capability.MEMORY_SNAPSHOT: _memory_snapshot,
    Capability.MEMORY_PAUSE: _memory_pause,
    Capability.PINNED_MEMORY: _pinned_memory,
    Capability.DETERMINISTIC: _undeclared,
    Capability.DEVICE_PROFILER: _device_profiler,
    Capability.DEVICE_ASSERTS: _undeclared,
    Capability.GRAPHS: _graphs,
    Capability.IPC: _ipc,
    Capability.FORK_AFTER_SELECTION: _fork_after_selection,
}


def _listed(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def _shown(error: BaseException) -> str:
    lines: list[Any] = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
