"""Faults in registering and finding backends (REG, SEL-13).

For: the catalogue. Not for: choosing one (`selection.py`). Each patches the reference's own methods and functions.
"""

from __future__ import annotations

import contextlib
from typing import Any

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.accelerator import interface, registration
from harness.accelerator.registry import AcceleratorRegistry


def _name_not_folded(patches: Patches) -> None:
    normalize = registration.normalize_name

    def keep_case(name: Any) -> str:
        normalize(name)
        return str(name).strip()

    patches.set(registration, "normalize_name", keep_case)


def _name_not_stripped(patches: Patches) -> None:
    normalize = registration.normalize_name

    def keep_spaces(name: Any) -> str:
        normalize(name)
        return str(name).lower()

    patches.set(registration, "normalize_name", keep_spaces)


def _reserved_name_accepted(patches: Patches) -> None:
    patches.set(registration, "RESERVED_NAMES", ("none",))


def _duplicate_replaces(patches: Patches) -> None:
    patches.set(AcceleratorRegistry, "_refuse_duplicate", lambda _registry, _name: None)


def _duplicate_ignored(patches: Patches) -> None:
    add = AcceleratorRegistry.add

    def keep_first(registry: AcceleratorRegistry, entry: registration.Registration, *, replace: bool = False) -> None:
        if registry.find(entry.name) is None:
            add(registry, entry, replace=replace)

    patches.set(AcceleratorRegistry, "add", keep_first)


def _registering_imports(patches: Patches) -> None:
    add = AcceleratorRegistry.add

    def eager(registry: AcceleratorRegistry, entry: registration.Registration, *, replace: bool = False) -> None:
        with contextlib.suppress(ImportError, AttributeError):
            registration.resolve_reference(entry.factory)
        add(registry, entry, replace=replace)

    patches.set(AcceleratorRegistry, "add", eager)


def _listing_loads(patches: Patches) -> None:
    names = AcceleratorRegistry.names

    def loading(registry: AcceleratorRegistry) -> tuple[str, ...]:
        registry.registrations()
        return names(registry)

    patches.set(AcceleratorRegistry, "names", loading)


def _failure_hides_others(patches: Patches) -> None:
    load = AcceleratorRegistry._load

    def raising(registry: AcceleratorRegistry, name: str, entry_point: Any) -> registration.Registration:
        loaded = load(registry, name, entry_point)
        if isinstance(loaded, Exception):
            raise loaded
        return loaded

    patches.set(AcceleratorRegistry, "_load", raising)


def _failure_forgotten(patches: Patches) -> None:
    patches.set(AcceleratorRegistry, "entry_point_failures", lambda _registry: {})


def _incomplete_class_accepted(patches: Patches) -> None:
    patches.set(interface, "missing_interface", lambda _backend: ())


def _one_lack_listed(patches: Patches) -> None:
    missing = interface.missing_interface
    patches.set(interface, "missing_interface", lambda backend: missing(backend)[:1])


FAULTS: tuple[Fault, ...] = (
    Fault("reg-name-not-folded", ("REG-1",), "A name is registered in the case that it was written in.", "seed", _name_not_folded),
    Fault("reg-name-not-stripped", ("REG-1",), "A name keeps the spaces around it.", "derived", _name_not_stripped),
    Fault("reg-reserved-name-accepted", ("REG-1",), "A backend can be called auto.", "derived", _reserved_name_accepted),
    Fault("reg-duplicate-replaces", ("REG-2",), "A second registration silently replaces the first.", "seed", _duplicate_replaces),
    Fault("reg-duplicate-ignored", ("REG-2",), "A second registration is dropped without a word.", "derived", _duplicate_ignored),
    Fault("reg-registering-imports", ("REG-3",), "Registering imports the factory's module.", "B50", _registering_imports),
    Fault("reg-listing-loads", ("REG-3",), "Listing the names imports every published backend.", "B50", _listing_loads),
    Fault(
        "reg-failure-hides-others",
        ("REG-4",),
        "A published backend that cannot be loaded ends the search for the others.",
        "B45",
        _failure_hides_others,
    ),
    Fault("reg-failure-forgotten", ("REG-4",), "Why a published backend cannot be loaded is forgotten.", "B45", _failure_forgotten),
    Fault("reg-incomplete-accepted", ("SEL-13",), "A backend that lacks methods is accepted.", "B54", _incomplete_class_accepted),
    Fault("reg-one-lack-listed", ("SEL-13",), "Only the first thing that a backend lacks is named.", "B54", _one_lack_listed),
)
