"""Independent probes of what a backend denies (CAP-3).

For: the evidence behind "unsupported" in a report, found through the adapter's own methods, so that a denial that the adapter
itself does not keep is noticed. Not for: the adapter's answers (`Accelerator.probe`) or what it declares
(`capability_demonstrations.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from conformance.accelerator_access import device_type_of
from harness.accelerator.capabilities import Capability, CapabilityEvidence

Look = Callable[[Any], CapabilityEvidence]


def probe_denial(accelerator: Any, capability: Capability | str) -> CapabilityEvidence:
    """What shows that a denied capability is missing or unused.

    `supported` is true where the adapter serves the capability all the same, so that the denial is wrong; `evidence` says what
    was tried and what came, with the adapter's own reason.

    Raises:
        UnknownCapabilityError: a name outside the closed set.
    """
    member = Capability.parse(capability)
    found = _claim(accelerator, member) if member.is_hint else _LOOKS[member](accelerator)
    reason = _own_reason(accelerator, member)
    return CapabilityEvidence(found.supported, f"{found.evidence}; the adapter says: {reason}" if reason else found.evidence)


def _own_reason(accelerator: Any, capability: Capability) -> str:
    probe = getattr(accelerator, "probe", None)
    if probe is None:
        return ""
    try:
        return str(probe(capability).evidence)
    except Exception as error:  # noqa: BLE001 - an adapter of any class; its error is what can be said of it
        return f"probe raised {type(error).__name__}: {error}"


def _claim(_accelerator: Any, capability: Capability) -> CapabilityEvidence:
    return CapabilityEvidence(False, f"a claim that no program can check: {capability.description.rstrip('.')}")


def _missing(text: str) -> CapabilityEvidence:
    return CapabilityEvidence(False, text)


def _present(text: str) -> CapabilityEvidence:
    return CapabilityEvidence(True, text)


def _called(accelerator: Any, name: str, *arguments: Any, **keywords: Any) -> CapabilityEvidence:
    """Whether a method of the adapter refuses, as it must where its capability is denied."""
    function = getattr(accelerator, name, None)
    shown = f"{name}({', '.join([*map(repr, arguments), *(f'{key}={value!r}' for key, value in keywords.items())])})"
    if function is None:
        return _missing(f"the adapter has no {name}")
    try:
        answer = function(*arguments, **keywords)
    except Exception as error:  # noqa: BLE001 - a refusal of any class shows the lack
        return _missing(f"{shown} raised {type(error).__name__}: {_first_line(error)}")
    if answer is None or answer is False:
        return _missing(f"{shown} answered {answer}")
    return _present(f"{shown} answered {_short(answer)}")


def _tried(text: str, attempt: Callable[[], Any]) -> CapabilityEvidence:
    """What a try without the adapter gives. Present or not, the adapter does not use it, so the denial stands."""
    try:
        answer = attempt()
    except Exception as error:  # noqa: BLE001 - as above
        return _missing(f"{text} raised {type(error).__name__}: {_first_line(error)}")
    return _missing(f"{text} answered {_short(answer)}, and the adapter leaves it unused")


def _first_of(*looks: CapabilityEvidence) -> CapabilityEvidence:
    """The first that found something, else all in one."""
    for look in looks:
        if look.supported:
            return look
    return _missing("; ".join(look.evidence for look in looks))


def _streams(accelerator: Any) -> CapabilityEvidence:
    return _first_of(
        _called(accelerator, "current_stream"), _called(accelerator, "new_stream"), _called(accelerator, "stream", None)
    )


def _event_timing(accelerator: Any) -> CapabilityEvidence:
    def measure() -> float:
        first, second = (accelerator.new_event(enable_timing=True) for _ in range(2))
        first.record()
        second.record()
        second.synchronize()
        return float(first.elapsed_time(second))

    try:
        elapsed = measure()
    except Exception as error:  # noqa: BLE001 - as above
        return _missing(f"timing two events raised {type(error).__name__}: {_first_line(error)}")
    return _present(f"two timed events are {elapsed:g} ms apart")


def _amp(accelerator: Any) -> CapabilityEvidence:
    return _first_of(_called(accelerator, "autocast", dtype=torch.bfloat16), _called(accelerator, "autocast", dtype=torch.float16))


def _computes_in(dtype: torch.dtype) -> Look:
    def look(accelerator: Any) -> CapabilityEvidence:
        device = accelerator.device()
        return _tried(f"a sum in {dtype} on {device}", lambda: torch.ones(2, dtype=dtype, device=device).sum().item())

    return look


def _memory_snapshot(accelerator: Any) -> CapabilityEvidence:
    find = getattr(accelerator, "memory_module", None)
    module = find() if callable(find) else None
    lacks = [name for name in ("_record_memory_history", "_snapshot") if not hasattr(module, name)]
    if lacks:
        return _missing(f"the memory namespace is {_short(module)}, without {' and '.join(lacks)}")
    return _present("memory_module() records and takes snapshots")


def _oom_observer(accelerator: Any) -> CapabilityEvidence:
    return _called(accelerator, "attach_oom_observer", _ignore)


def _ignore(_device: int, _asked: int, _limit: int, _free: int) -> None:
    """An observer that observes nothing; the same function each time, so that it is attached once."""


def _not_shown(what: str) -> Look:
    return lambda _accelerator: _missing(f"{what}: no program can show that it is missing")


def _fork_after_selection(accelerator: Any) -> CapabilityEvidence:
    # Devices may be listed and forking may fail for another reason, so a list is no contradiction.
    found = _called(accelerator, "physical_devices")
    return _missing(f"{found.evidence}, and the adapter promises nothing about forking")


_LOOKS: Mapping[Capability, Look] = {
    Capability.AMP: _amp,
    Capability.BF16: _computes_in(torch.bfloat16),
    Capability.FP16: _computes_in(torch.float16),
    Capability.STREAMS: _streams,
    Capability.EVENTS: lambda accelerator: _called(accelerator, "new_event"),
    Capability.EVENT_TIMING: _event_timing,
    Capability.RNG: lambda accelerator: _called(accelerator, "get_rng_state"),
    Capability.DEVICE_GENERATOR: lambda accelerator: _tried(
        f"torch.Generator(device={str(accelerator.device())!r})", lambda: torch.Generator(device=accelerator.device()).device
    ),
    Capability.DEVICE_MEMORY: lambda accelerator: _first_of(
        _called(accelerator, "memory_allocated"), _called(accelerator, "mem_get_info")
    ),
    Capability.PEAK_MEMORY: lambda accelerator: _called(accelerator, "max_memory_allocated"),
    Capability.OOM_OBSERVER: _oom_observer,
    Capability.MEMORY_SNAPSHOT: _memory_snapshot,
    Capability.MEMORY_PAUSE: lambda accelerator: _missing(
        f"{device_type_of(accelerator)} memory is paused by nothing of the adapter's"
    ),
    Capability.PINNED_MEMORY: lambda _accelerator: _tried(
        "is_pinned() after pin_memory()", lambda: torch.ones(1).pin_memory().is_pinned()
    ),
    Capability.DEVICE_PROPERTIES: lambda accelerator: _called(accelerator, "get_device_properties"),
    Capability.DETERMINISTIC: _not_shown("determinism"),
    Capability.DEVICE_PROFILER: lambda _accelerator: _tried(
        "torch.profiler.supported_activities()",
        lambda: sorted(str(activity) for activity in torch.profiler.supported_activities()),  # type: ignore[no-untyped-call]
    ),
    Capability.DEVICE_ASSERTS: _not_shown("an assertion inside a kernel"),
    Capability.GRAPHS: lambda accelerator: _tried(
        f"looking for a graph class in torch.{device_type_of(accelerator)}",
        lambda: [name for name in dir(getattr(torch, device_type_of(accelerator))) if name.endswith("Graph")],
    ),
    Capability.IPC: lambda accelerator: _tried(
        "looking for a storage of the device that can be shared",
        lambda: [name for name in dir(torch.UntypedStorage) if name.startswith("_share_") and device_type_of(accelerator) in name],
    ),
    Capability.FORK_AFTER_SELECTION: _fork_after_selection,
}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}…"
