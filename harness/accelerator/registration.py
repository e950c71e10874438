"""What is known of a backend before anything of it is imported.

For: the data that a vendor registers or publishes (`AcceleratorPlugin`), the named form that the registry keeps (`Registration`),
and the answer of a probe (`Availability`). Not for: keeping registrations (`registry.py`) or acting on them (`selection.py`).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from harness.accelerator.interface import require_interface
from harness.errors import InvalidAcceleratorNameError, InvalidRegistrationError

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator

Factory: TypeAlias = "Callable[[], Accelerator] | str"
"""A class or function without arguments that makes the accelerator, or `"module:attribute"`, imported when it is first called."""
Probe: TypeAlias = "Callable[[], Any] | str"
"""Whether a device can be used now, as a bool or an `Availability`; or `"module:attribute"`. Opens no context, imports nothing."""
Bootstrap: TypeAlias = "Callable[[Mapping[str, str]], object] | str"
"""Prepares the vendor's runtime, given the environment, before the factory is called; or `"module:attribute"`."""

RESERVED_NAMES = ("auto", "none")
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Availability:
    """A probe's answer with its reason; true in a condition when a device can be used.

    `reason` says in words what was found, for the errors of selection (SEL-2, SEL-4).
    """

    usable: bool
    reason: str

    def __bool__(self) -> bool:
        return self.usable


@dataclass(frozen=True, kw_only=True)
class AcceleratorPlugin:
    """What a backend says of itself; the value of an entry point of the group `accelerator_conformance.backends`.

    `factory`: see `Factory`. `is_available`: see `Probe`; without one the factory is called and its product is asked, so give a
    probe where constructing costs anything. `priority`: the higher is preferred in automatic selection. `communication_backends`:
    names of its transports in `torch.distributed`. `request_variables`: environment variables of which a value that is not blank
    requests this backend (SEL-1). `bootstrap`: see `Bootstrap`; it needs a probe, or the choice could not come before it (SEL-6).
    `remedy`: one sentence on how to make the backend usable, shown when a request cannot be met (SEL-2).
    """

    factory: Factory
    is_available: Probe | None = None
    priority: int = 0
    communication_backends: tuple[str, ...] = ()
    request_variables: tuple[str, ...] = ()
    bootstrap: Bootstrap | None = None
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Registration(AcceleratorPlugin):
    """A plugin under its name. `origin` says in words where it came from. Make one with `checked_registration`."""

    name: str
    origin: str = "registered by the program"

    @property
    def shown(self) -> str:
        """The name and origin, to open an error's message."""
        return f"accelerator {self.name!r} ({self.origin})"

    def new_accelerator(self) -> Accelerator:
        """What the factory makes; a referenced factory is imported now. A class is made only if it has the whole interface.

        Raises:
            IncompleteAcceleratorError: the factory is a class that lacks part of the interface; all lacks are listed (SEL-13).
            Whatever the import or the factory raises.
        """
        factory = resolve_reference(self.factory)
        if isinstance(factory, type):
            require_interface(factory, self.shown)
        return cast("Accelerator", factory())


def normalize_name(name: object) -> str:
    """The form under which a name is registered and requested: stripped and lower-cased (REG-1).

    Raises:
        InvalidAcceleratorNameError: not a string, empty, `auto` or `none`.
    """
    if not isinstance(name, str):
        raise InvalidAcceleratorNameError(f"an accelerator's name is a string, not {name!r} ({type(name).__name__})")
    normalized = name.strip().lower()
    if not normalized or normalized in RESERVED_NAMES:
        raise InvalidAcceleratorNameError(
            f"{name!r} cannot name an accelerator: the name must not be blank, and {' and '.join(RESERVED_NAMES)} have a meaning "
            "of their own in requests; choose another name, such as the device type"
        )
    return normalized


def checked_registration(registration: Registration) -> Registration:
    """The registration with its name normalised and its sequences as tuples, after every part was looked at.

    Raises:
        InvalidAcceleratorNameError: see `normalize_name`.
        InvalidRegistrationError: a part of the wrong kind; the message names the part.
        IncompleteAcceleratorError: the factory is a class that lacks part of the interface; all lacks are listed (SEL-13).
    """
    name = normalize_name(registration.name)
    _require_callable(name, "factory", registration.factory)
    for part in ("is_available", "bootstrap"):
        if getattr(registration, part) is not None:
            _require_callable(name, part, getattr(registration, part))
    if isinstance(registration.priority, bool) or not isinstance(registration.priority, int):
        raise InvalidRegistrationError(f"accelerator {name!r}: priority is an int, not {registration.priority!r}")
    if registration.bootstrap is not None and registration.is_available is None:
        raise InvalidRegistrationError(
            f"accelerator {name!r}: a bootstrap needs an is_available probe, since it runs only after the backend was chosen"
        )
    if isinstance(registration.factory, type):
        require_interface(registration.factory, f"accelerator {name!r}")
    return replace(
        registration,
        name=name,
        communication_backends=_strings(name, "communication_backends", registration.communication_backends),
        request_variables=_strings(name, "request_variables", registration.request_variables),
    )


def resolve_reference(reference: Any) -> Any:
    """The object that `"module:attribute"` names, imported now; anything but a string is returned as it is.

    Raises:
        whatever the import raises; AttributeError where the module lacks the attribute.
    """
    if not isinstance(reference, str):
        return reference
    module, _, attributes = reference.partition(":")
    value: Any = importlib.import_module(module)
    for attribute in attributes.split("."):
        value = getattr(value, attribute)
    return value


def _require_callable(name: str, part: str, value: object) -> None:
    if isinstance(value, str) and not _REFERENCE.fullmatch(value):
        raise InvalidRegistrationError(f"accelerator {name!r}: {part}={value!r} is not of the form 'package.module:attribute'")
    if not isinstance(value, str) and not callable(value):
        raise InvalidRegistrationError(
            f"accelerator {name!r}: {part} is a callable or a string 'package.module:attribute', not {value!r}"
        )


def _strings(name: str, part: str, values: Iterable[str]) -> tuple[str, ...]:
    strings = () if isinstance(values, str) or not isinstance(values, Iterable) else tuple(values)
    if (not strings and values != ()) or not all(isinstance(value, str) and value.strip() for value in strings):
        raise InvalidRegistrationError(f"accelerator {name!r}: {part} is a sequence of names such as ('nccl',), not {values!r}")
    return strings
