"""Faults in choosing a backend (SEL-1 to SEL-12).

For: the catalogue. Not for: registering (`registry.py`) or the probes and patches of vendors (`vendor_probes.py`). Each patches the
reference's own methods and functions.
"""

from __future__ import annotations

import contextlib
from typing import Any

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.accelerator import registry as registry_module
from harness.accelerator import selection
from harness.accelerator.registration import resolve_reference
from harness.accelerator.registry import AcceleratorRegistry
from harness.accelerator.selection import AcceleratorSelector, CheckedAvailability, Request
from harness.errors import AcceleratorUnavailableError, NoAcceleratorError, UnknownAcceleratorError


def _request_falls_back(patches: Patches) -> None:
    strict = AcceleratorSelector._select_requested

    def lenient(selector: AcceleratorSelector, request: Request) -> Any:
        try:
            return strict(selector, request)
        except AcceleratorUnavailableError:
            return selector._select_available()

    patches.set(AcceleratorSelector, "_select_requested", lenient)


def _auto_is_a_name(patches: Patches) -> None:
    request = AcceleratorSelector.request

    def literal(selector: AcceleratorSelector) -> Request | None:
        value = selector._current_environment().get(selector.variable, "")
        return Request(value, selector.variable, "") if value.strip().lower() == "auto" else request(selector)

    patches.set(AcceleratorSelector, "request", literal)


def _request_not_trimmed(patches: Patches) -> None:
    find = AcceleratorRegistry._require_known

    def exact(registry: AcceleratorRegistry, name: str) -> str:
        known = find(registry, name)
        if known != name:
            raise UnknownAcceleratorError(f"unknown accelerator {name!r}; registered: {', '.join(registry.names())}")
        return known

    patches.set(AcceleratorRegistry, "_require_known", exact)


def _empty_variable_requests(patches: Patches) -> None:
    request = AcceleratorSelector.request

    def by_presence(selector: AcceleratorSelector) -> Request | None:
        found = request(selector)
        environment = selector._current_environment()
        for registration in selector.registry.registrations() if found is None else ():
            for variable in registration.request_variables:
                if variable in environment:
                    return Request(registration.name, variable, "")
        return found

    patches.set(AcceleratorSelector, "request", by_presence)


def _vendor_before_explicit(patches: Patches) -> None:
    request = AcceleratorSelector.request

    def vendor_first(selector: AcceleratorSelector) -> Request | None:
        environment = selector._current_environment()
        for registration in selector.registry.registrations():
            for variable in registration.request_variables:
                if environment.get(variable):
                    return Request(registration.name, variable, "")
        return request(selector)

    patches.set(AcceleratorSelector, "request", vendor_first)


def _ties_by_insertion(patches: Patches) -> None:
    patches.set(registry_module, "selection_order", lambda registration: (-registration.priority, ""))


def _lowest_priority_first(patches: Patches) -> None:
    patches.set(registry_module, "selection_order", lambda registration: (registration.priority, registration.name))


def _unknown_name_without_list(patches: Patches) -> None:
    find = AcceleratorRegistry._require_known

    def terse(registry: AcceleratorRegistry, name: str) -> str:
        try:
            return find(registry, name)
        except UnknownAcceleratorError:
            raise UnknownAcceleratorError(f"unknown accelerator {name!r}") from None

    patches.set(AcceleratorRegistry, "_require_known", terse)


def _reasons_dropped(patches: Patches) -> None:
    def terse(_selector: AcceleratorSelector, reasons: Any) -> NoAcceleratorError:
        return NoAcceleratorError(f"no usable accelerator among {', '.join(sorted(reasons))}")

    patches.set(AcceleratorSelector, "_nothing_usable", terse)


def _initialize_swallows_requests(patches: Patches) -> None:
    def lenient(selector: AcceleratorSelector) -> Any:
        try:
            return selector.get()
        except (ValueError, RuntimeError):
            return None

    patches.set(AcceleratorSelector, "initialize", lenient)


def _initialize_needs_a_device(patches: Patches) -> None:
    patches.set(AcceleratorSelector, "initialize", AcceleratorSelector.get)


def _no_lock(patches: Patches) -> None:
    patches.set(AcceleratorSelector, "_exclusively", lambda _selector: contextlib.nullcontext())


def _failed_selection_sticks(patches: Patches) -> None:
    select = AcceleratorSelector._select

    def remembering(selector: AcceleratorSelector) -> Any:
        failure = vars(selector).get("_failure")
        if failure is not None:
            raise failure
        try:
            return select(selector)
        except Exception as error:
            vars(selector)["_failure"] = error
            raise

    patches.set(AcceleratorSelector, "_select", remembering)


def _probe_error_escapes(patches: Patches) -> None:
    def unguarded(_what: str, probe: Any) -> CheckedAvailability:
        usable = bool(resolve_reference(probe)())
        return CheckedAvailability(usable, "unavailable")

    patches.set(selection, "_checked", unguarded)


def _probe_error_hidden(patches: Patches) -> None:
    checked = selection._checked

    def silent(what: str, probe: Any) -> CheckedAvailability:
        answer = checked(what, probe)
        return answer if answer.cause is None else CheckedAvailability(False, "unavailable")

    patches.set(selection, "_checked", silent)


def _set_accepts_anything(patches: Patches) -> None:
    def trusting(selector: AcceleratorSelector, accelerator: Any) -> None:
        selector._selected = accelerator

    patches.set(AcceleratorSelector, "set", trusting)


def _product_not_looked_at(patches: Patches) -> None:
    patches.set(AcceleratorSelector, "_construct", lambda _selector, registration, _request: registration.new_accelerator())


FAULTS: tuple[Fault, ...] = (
    Fault("sel-request-falls-back", ("SEL-2",), "An unmet request falls back to another backend.", "B49", _request_falls_back),
    Fault("sel-auto-is-a-name", ("SEL-1",), "The value auto is looked up as a backend's name.", "derived", _auto_is_a_name),
    Fault("sel-request-not-trimmed", ("SEL-1",), "Spaces or capitals in a request make it unknown.", "seed", _request_not_trimmed),
    Fault(
        "sel-empty-variable-requests",
        ("SEL-1",),
        "A vendor's variable that is set to nothing counts as a request.",
        "seed",
        _empty_variable_requests,
    ),
    Fault(
        "sel-vendor-before-explicit",
        ("SEL-1",),
        "A vendor's variable beats the explicit request.",
        "derived",
        _vendor_before_explicit,
    ),
    Fault(
        "sel-ties-by-insertion", ("SEL-1",), "Equal priorities are decided by registration order.", "derived", _ties_by_insertion
    ),
    Fault("sel-lowest-priority-first", ("SEL-1",), "The lowest priority is preferred.", "derived", _lowest_priority_first),
    Fault("sel-unknown-name-without-list", ("SEL-3",), "The known names are not listed.", "derived", _unknown_name_without_list),
    Fault("sel-reasons-dropped", ("SEL-4",), "The reasons for passing backends over are dropped.", "seed", _reasons_dropped),
    Fault(
        "sel-initialize-swallows-requests",
        ("SEL-5",),
        "Initialising answers None where a request cannot be met.",
        "derived",
        _initialize_swallows_requests,
    ),
    Fault(
        "sel-initialize-needs-a-device",
        ("SEL-5",),
        "Initialising raises on a host without devices.",
        "B57",
        _initialize_needs_a_device,
    ),
    Fault("sel-no-lock", ("SEL-8",), "Threads select at the same time.", "derived", _no_lock),
    Fault("sel-failed-selection-sticks", ("SEL-9",), "A failure is raised again for ever.", "derived", _failed_selection_sticks),
    Fault("sel-probe-error-escapes", ("SEL-11",), "A probe that raises ends automatic selection.", "B43", _probe_error_escapes),
    Fault("sel-probe-error-hidden", ("SEL-11",), "The error of a probe is not shown.", "B45", _probe_error_hidden),
    Fault("sel-set-accepts-anything", ("SEL-12",), "Any object can be set as the accelerator.", "derived", _set_accepts_anything),
    Fault("sel-product-not-looked-at", ("SEL-13",), "Whatever a factory returns is handed out.", "B54", _product_not_looked_at),
)
