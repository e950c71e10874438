"""The accelerators that a process knows, by name.

For: registering backends without importing them, and finding those that installed packages publish (REG-1 to REG-4). Not for:
choosing one (`selection.py`), or the built-in list (`default.py`).

A vendor publishes a backend by an entry point whose name is the backend's and whose value is an `AcceleratorPlugin`, or a factory
(a class or function without arguments) where the defaults of `AcceleratorPlugin` suffice:

    [project.entry-points."accelerator_conformance.backends"]
    example = "example_accelerator.plugin:PLUGIN"

The module is imported when the backend is requested by name or automatic selection has to ask it, never by registering or listing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from importlib import metadata

from harness.accelerator.interface import missing_interface
from harness.accelerator.registration import (
    AcceleratorPlugin,
    Bootstrap,
    Factory,
    Probe,
    Registration,
    checked_registration,
    normalize_name,
)
from harness.errors import AcceleratorUnavailableError, DuplicateAcceleratorError, UnknownAcceleratorError

__all__ = ["ENTRY_POINT_GROUP", "AcceleratorRegistry", "installed_entry_points", "missing_interface"]

ENTRY_POINT_GROUP = "accelerator_conformance.backends"


def installed_entry_points() -> Iterable[metadata.EntryPoint]:
    """The entry points of the group in every installed distribution; nothing of them is imported."""
    return metadata.entry_points(group=ENTRY_POINT_GROUP)


class AcceleratorRegistry:
    """Registrations by normalised name; safe to use from several threads.

    `registrations` are there from the start. `entry_points` is called once, when names are first needed, and gives the published
    backends; None for a registry without any. A failed entry point is kept in `entry_point_failures` and tried again at the next
    need, so that it works once its cause is mended. Two entry points of one name, or one that takes a registered name, are failures
    too: what was registered, or was published first in the order of entry-point values, stays.
    """

    def __init__(
        self,
        registrations: Iterable[Registration] = (),
        entry_points: Callable[[], Iterable[metadata.EntryPoint]] | None = None,
    ) -> None:
        self._lock = threading.RLock()
        self._registrations: dict[str, Registration] = {}
        self._entry_points: dict[str, metadata.EntryPoint] = {}
        self._refused: dict[str, Exception] = {}
        self._failures: dict[str, Exception] = {}
        self._find_entry_points: Callable[[], Iterable[metadata.EntryPoint]] | None = None
        for registration in registrations:
            self.add(registration)
        self._find_entry_points = entry_points

    def register(
        self,
        name: str,
        factory: Factory,
        is_available: Probe | None = None,
        priority: int = 0,
        communication_backends: tuple[str, ...] = (),
        *,
        replace: bool = False,
        request_variables: tuple[str, ...] = (),
        bootstrap: Bootstrap | None = None,
        remedy: str = "",
    ) -> None:
        """Register a backend; the arguments are the fields of `AcceleratorPlugin`. Nothing is imported or called (REG-3).

        Raises:
            InvalidAcceleratorNameError: a name that cannot be registered (REG-1).
            DuplicateAcceleratorError: the name is taken and `replace` is false (REG-2).
            InvalidRegistrationError: an argument of the wrong kind.
            IncompleteAcceleratorError: `factory` is a class that lacks part of the interface (SEL-13).
        """
        registration = Registration(
            name=name,
            factory=factory,
            is_available=is_available,
            priority=priority,
            communication_backends=communication_backends,
            request_variables=request_variables,
            bootstrap=bootstrap,
            remedy=remedy,
        )
        self.add(registration, replace=replace)

    def add(self, registration: Registration, *, replace: bool = False) -> None:
        """As `register`, of a `Registration`."""
        checked = checked_registration(registration)
        with self._lock:
            self._discover()
            if not replace:
                self._refuse_duplicate(checked.name)
            self._entry_points.pop(checked.name, None)
            self._failures.pop(checked.name, None)
            self._registrations[checked.name] = checked

    def unregister(self, name: str) -> None:
        """Forget a backend, also one that an entry point published. An accelerator already selected stays selected.

        Raises:
            UnknownAcceleratorError: nobody registered it.
        """
        with self._lock:
            known = self._require_known(name)
            self._registrations.pop(known, None)
            self._entry_points.pop(known, None)
            self._failures.pop(known, None)

    def names(self) -> tuple[str, ...]:
        """Every registered or published name, sorted; imports nothing."""
        with self._lock:
            self._discover()
            return tuple(sorted({*self._registrations, *self._entry_points}))

    def get(self, name: str) -> Registration:
        """The registration of a name in any spelling that `normalize_name` folds; loads its entry point where it has one.

        Raises:
            UnknownAcceleratorError: nobody registered it; the message lists the sorted names (SEL-3).
            AcceleratorUnavailableError: its entry point fails to load; the error is chained and named (SEL-2, REG-4).
        """
        with self._lock:
            known = self._require_known(name)
            entry_point = self._entry_points.get(known)
            if entry_point is None:
                return self._registrations[known]
        loaded = self._load(known, entry_point)
        if isinstance(loaded, Exception):
            raise AcceleratorUnavailableError(
                f"accelerator {known!r} cannot be loaded: {_shown(entry_point)} raised {type(loaded).__name__}: {loaded}. "
                "Mend or uninstall the package that publishes it"
            ) from loaded
        return loaded

    def find(self, name: str) -> Registration | None:
        """As `get`, but None where nobody registered the name or its entry point fails to load (`entry_point_failures` has why)."""
        try:
            return self.get(name)
        except (UnknownAcceleratorError, AcceleratorUnavailableError):
            return None

    def registrations(self) -> tuple[Registration, ...]:
        """Every usable registration by descending priority, ties by name; loads the entry points, of which those that fail are left
        out and kept in `entry_point_failures` (REG-4)."""
        with self._lock:
            self._discover()
            pending = dict(self._entry_points)
        for name, entry_point in pending.items():
            self._load(name, entry_point)
        with self._lock:
            return tuple(sorted(self._registrations.values(), key=selection_order))

    def entry_point_failures(self) -> dict[str, Exception]:
        """The entry points that failed when they were last needed, by name, each with its error; imports nothing."""
        with self._lock:
            self._discover()
            return {**self._refused, **self._failures}

    def _discover(self) -> None:
        """Read the names of the published backends, once."""
        if self._find_entry_points is None:
            return
        try:
            found = sorted(self._find_entry_points(), key=lambda entry_point: (entry_point.name, entry_point.value))
        except Exception as error:  # noqa: BLE001 - a damaged package must not hide what is registered (REG-4)
            self._refused["the metadata of installed packages"] = error
            return
        self._find_entry_points = None
        self._refused.clear()
        for entry_point in found:
            try:
                name = normalize_name(entry_point.name)
                self._refuse_duplicate(name)
            except ValueError as error:
                self._refused[_shown(entry_point)] = error
            else:
                self._entry_points[name] = entry_point

    def _load(self, name: str, entry_point: metadata.EntryPoint) -> Registration | Exception:
        """Import an entry point and keep the result, which is an error where that fails. The lock is not held meanwhile: the module
        may register something itself, or be on its way in another thread, which waits for this registry."""
        loaded: Registration | Exception
        try:
            loaded = registration_of(name, entry_point)
        except Exception as error:  # noqa: BLE001 - whatever a vendor's package raises, the others stay usable (REG-4)
            loaded = error
        with self._lock:
            if isinstance(loaded, Exception):
                self._failures[name] = loaded
                return loaded
            if self._entry_points.pop(name, None) is not None:
                self._registrations[name] = loaded
            self._failures.pop(name, None)
            return self._registrations.get(name, loaded)

    def _refuse_duplicate(self, name: str) -> None:
        taken = self._registrations.get(name)
        published = self._entry_points.get(name)
        if taken is not None:
            raise _duplicate(name, taken.origin)
        if published is not None:
            raise _duplicate(name, f"published by {_shown(published)}")

    def _require_known(self, name: str) -> str:
        self._discover()
        known = {*self._registrations, *self._entry_points}
        folded = name.strip().lower() if isinstance(name, str) else name
        if folded not in known:
            raise UnknownAcceleratorError(
                f"unknown accelerator {name!r}; registered: {', '.join(sorted(known)) or 'none'}. Register it with "
                f"register_accelerator(), or install a package that publishes it in {ENTRY_POINT_GROUP!r}"
            )
        return str(folded)


def selection_order(registration: Registration) -> tuple[int, str]:
    """The sorting key of automatic selection: descending priority, ties by name (SEL-1)."""
    return (-registration.priority, registration.name)


def registration_of(name: str, entry_point: metadata.EntryPoint) -> Registration:
    """The checked registration that an entry point's value describes; imports its module.

    Raises:
        whatever the import raises, and what `checked_registration` does.
    """
    value = entry_point.load()
    plugin = value if isinstance(value, AcceleratorPlugin) else AcceleratorPlugin(factory=value)
    fields = {field: getattr(plugin, field) for field in AcceleratorPlugin.__dataclass_fields__}
    return checked_registration(Registration(**fields, name=name, origin=f"published by {_shown(entry_point)}"))


def _duplicate(name: str, origin: str) -> DuplicateAcceleratorError:
    return DuplicateAcceleratorError(
        f"accelerator {name!r} is there already ({origin}); pass replace=True to replace it, or choose another name"
    )


def _shown(entry_point: metadata.EntryPoint) -> str:
    package = f" of {entry_point.dist.name} {entry_point.dist.version}" if entry_point.dist is not None else ""
    return f"entry point '{entry_point.name} = {entry_point.value}'{package}"
