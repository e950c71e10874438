"""Faults of the answers about capabilities (CAP).

For: typos that read as "no", declarations and denials that are not kept, and answers that change. Not for: what is wrong inside an area
whose capability is declared; that is the area's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply
from fakes.patching import Patches
from harness.accelerator.capabilities import Capability, CapabilityEvidence
from harness.accelerator.namespace_access import NamespaceAccess
from harness.accelerator.namespace_memory import NamespaceMemory
from harness.accelerator.namespace_random import NamespaceRandom
from harness.accelerator.torch_namespace import TorchNamespaceAccelerator
from harness.errors import UnknownCapabilityError

Right = Callable[[], CapabilityEvidence]


def _probe(wrong: Callable[[Any, Any, Right], CapabilityEvidence]) -> Apply:
    """Replace `probe`; `wrong(accelerator, capability, right)` may ask `right()` for the true answer."""

    def apply(patches: Patches) -> None:
        original = TorchNamespaceAccelerator.probe

        def probe(self: Any, capability: Any) -> CapabilityEvidence:
            return wrong(self, capability, lambda: original(self, capability))

        patches.set(TorchNamespaceAccelerator, "probe", probe)

    return apply


def _answer(capability: Capability, supported: bool) -> Apply:
    """One capability is declared or denied whatever is true."""
    return _probe(
        lambda _accelerator, asked, right: CapabilityEvidence(supported, "a wrong answer") if asked == capability else right()
    )


def _typo_is_no(_accelerator: Any, _asked: Any, right: Right) -> CapabilityEvidence:
    try:
        return right()
    except UnknownCapabilityError:
        return CapabilityEvidence(False, "not known")


def _typo_without_suggestion(_accelerator: Any, asked: Any, right: Right) -> CapabilityEvidence:
    try:
        return right()
    except UnknownCapabilityError:
        raise ValueError(f"unknown capability {asked!r}") from None


def _known_name_refused(_accelerator: Any, asked: Any, right: Right) -> CapabilityEvidence:
    if asked == Capability.DEVICE_ASSERTS:
        raise UnknownCapabilityError(f"unknown capability {asked!r}")
    return right()


def _without_evidence(_accelerator: Any, _asked: Any, right: Right) -> CapabilityEvidence:
    return CapabilityEvidence(right().supported, "")


def _follows_the_runtime(accelerator: Any, asked: Any, right: Right) -> CapabilityEvidence:
    if asked == Capability.BF16:
        return CapabilityEvidence(accelerator._runtime_used, "whether the runtime is in use")
    return right()


def _initialises(accelerator: Any, asked: Any, right: Right) -> CapabilityEvidence:
    if asked == Capability.STREAMS:
        accelerator.accelerator_module().init()
    return right()


def _apply_differs_by_object(patches: Patches) -> None:
    seen: list[int] = []

    def wrong(accelerator: Any, asked: Any, right: Right) -> CapabilityEvidence:
        if asked != Capability.TRITON_KERNELS:
            return right()
        if id(accelerator) not in seen:
            seen.append(id(accelerator))
        return CapabilityEvidence(seen.index(id(accelerator)) % 2 == 0, "every second object has it")

    _probe(wrong)(patches)


def _apply_state_not_restored(patches: Patches) -> None:
    patches.set(NamespaceRandom, "set_rng_state", lambda _self, _state, _device=None: None)


def _apply_selection_initialises(patches: Patches) -> None:
    original = NamespaceAccess.is_available

    def is_available(self: Any) -> bool:
        self.accelerator_module().init()
        return original(self)

    patches.set(NamespaceAccess, "is_available", is_available)


def _apply_observer_declared_but_missing(patches: Patches) -> None:
    _answer(Capability.OOM_OBSERVER, True)(patches)
    patches.set(NamespaceMemory, "attach_oom_observer", lambda _self, _callback: False)


FAULTS: tuple[Fault, ...] = (
    Fault("cap-typo-is-no", ("CAP-1",), "A capability that nobody knows reads as not supported.", "seed", _probe(_typo_is_no)),
    Fault(
        "cap-typo-without-suggestion",
        ("CAP-1",),
        "A typo is refused without the nearest known name.",
        "derived",
        _probe(_typo_without_suggestion),
    ),
    Fault("cap-known-name-refused", ("CAP-1",), "A name of the closed set is refused.", "B54", _probe(_known_name_refused)),
    Fault(
        "cap-declared-but-missing",
        ("CAP-2",),
        "Memory snapshots are declared where there are none.",
        "B97",
        _answer(Capability.MEMORY_SNAPSHOT, True),
    ),
    Fault(
        "cap-observer-declared-but-missing",
        ("CAP-2",),
        "The out-of-memory observer is declared where nothing attaches one.",
        "B106",
        _apply_observer_declared_but_missing,
    ),
    Fault(
        "cap-declared-but-without-effect",
        ("CAP-2",),
        "Random states are declared, and restoring one does nothing.",
        "B123",
        _apply_state_not_restored,
    ),
    Fault(
        "cap-profiler-declared-but-missing",
        ("CAP-2",),
        "The device profiler is declared where PyTorch's profiler has no activity of the device.",
        "derived",
        _answer(Capability.DEVICE_PROFILER, True),
    ),
    Fault(
        "cap-selection-initialises",
        ("CAP-2",),
        "Asking whether a device is available initialises the runtime, so that a fork breaks.",
        "B51",
        _apply_selection_initialises,
    ),
    Fault(
        "cap-denied-but-served",
        ("CAP-3",),
        "Device memory is denied, and its counters answer.",
        "derived",
        _answer(Capability.DEVICE_MEMORY, False),
    ),
    Fault(
        "cap-streams-denied-but-served",
        ("CAP-3",),
        "Streams are denied, and a stream can be made and selected.",
        "derived",
        _answer(Capability.STREAMS, False),
    ),
    Fault("cap-without-evidence", ("CAP-3",), "Answers come without what was looked at.", "derived", _probe(_without_evidence)),
    Fault(
        "cap-answer-follows-the-runtime",
        ("CAP-4",),
        "bfloat16 is denied until the device is in use.",
        "derived",
        _probe(_follows_the_runtime),
    ),
    Fault("cap-answers-differ-by-object", ("CAP-4",), "Two adapter objects give two answers.", "derived", _apply_differs_by_object),
    Fault("cap-probe-initialises", ("CAP-4",), "Asking for streams initialises the runtime.", "B50", _probe(_initialises)),
)
