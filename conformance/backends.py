"""From the names on the command line to the backend under test.

For: finding what `--backend` and `--accelerator` mean, installing the simulated machine and the fault, and making adapters. Used in the
suite's process and in its child processes alike. Not for: deciding which checks run (`gating.py`).
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from conformance.errors import BackendNameError, FactoryError, OptionError

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator

FAKE_PREFIX = "fake-"

_THREE_WAYS = """There are three ways to bring a backend:
  1. a device type that PyTorch knows (torch.get_device_module(NAME)): --backend=NAME, no code needed;
  2. an installed package with an entry point in the group 'accelerator_conformance.backends': --backend=<its name>;
  3. code of your own: --accelerator=package.module:factory, where factory() returns the accelerator object."""


@dataclass(frozen=True)
class BackendChoice:
    """What the user chose; plain data, so that it can be sent to a child process.

    `backend` is a name or empty (then `accelerator` names a factory that needs no simulated machine); `devices` is the number of devices
    to simulate or to use at most.
    """

    backend: str = ""
    accelerator: str = ""
    devices: int | None = None
    fault: str = ""

    def as_data(self) -> dict[str, Any]:
        """The keyword arguments that make an equal choice."""
        return asdict(self)


@dataclass(frozen=True)
class PreparedBackend:
    """A backend that can make adapters in this process.

    `new_accelerator` returns a fresh adapter object through which no runtime call was made.
    """

    name: str
    new_accelerator: Callable[[], Accelerator]
    is_fake: bool
    is_external: bool
    unavailable_reason: Callable[[], str | None] = field(default=lambda: None)


def prepare_backend(choice: BackendChoice) -> PreparedBackend:
    """Install what the choice needs in this process and find its factory.

    Raises:
        BackendNameError: nothing has that name. FactoryError: the named code cannot be loaded. OptionError: the fault does not exist, or
        the number of devices is not legal.
    """
    make = _factory_of(choice)
    apply_fault(choice.fault)
    if choice.accelerator:
        external = load_callable(choice.accelerator, "--accelerator")
        _call_factory(external, choice.accelerator)
        make = lambda: _call_factory(external, choice.accelerator)  # noqa: E731 - the same factory, called again
    accelerator = _call_factory(make, choice.backend or choice.accelerator)
    name = choice.backend or str(getattr(accelerator, "name", choice.accelerator))
    return PreparedBackend(
        name=name,
        new_accelerator=make,
        is_fake=choice.backend.startswith(FAKE_PREFIX),
        is_external=bool(choice.accelerator) or not choice.backend.startswith(FAKE_PREFIX),
        unavailable_reason=lambda: why_unavailable(name, accelerator),
    )


def _factory_of(choice: BackendChoice) -> Callable[[], Any]:
    """The factory behind `--backend`; installs the simulated machine where the name asks for one."""
    name = choice.backend
    if not name:
        return lambda: None
    if name.startswith(FAKE_PREFIX):
        return _install_fake(name.removeprefix(FAKE_PREFIX), choice.devices)
    registered = _registered_factory(name)
    if registered is not None:
        return registered
    if _is_torch_device_type(name):
        from harness.accelerator.generic import GenericAccelerator

        return lambda: GenericAccelerator(name)
    raise BackendNameError(unknown_backend_text(name))


def _install_fake(persona: str, devices: int | None) -> Callable[[], Any]:
    from fakes.errors import FakeError

    import fakes

    personas = fake_names()
    if FAKE_PREFIX + persona not in personas:
        raise BackendNameError(unknown_backend_text(FAKE_PREFIX + persona))
    try:
        machine = fakes.install(persona, **({} if devices is None else {"devices": devices}))
    except FakeError as error:
        raise OptionError(str(error)) from error
    device_type = machine.persona.device_type
    factory = _registered_factory(device_type)
    if factory is not None:
        return factory
    from harness.accelerator.generic import GenericAccelerator

    return lambda: GenericAccelerator(device_type)


def _registered_factory(name: str) -> Callable[[], Any] | None:
    from harness.accelerator.registry import default_registry

    registration = default_registry().find(name)
    if registration is None:
        failures = default_registry().entry_point_failures()
        if name in failures:
            raise FactoryError(f"the entry point {name!r} cannot be loaded: {failures[name]}")
        return None
    return registration.factory


def _is_torch_device_type(name: str) -> bool:
    import torch

    try:
        return torch.device(name).index is None and name not in ("meta", "privateuseone")
    except (RuntimeError, ValueError):
        return False


def apply_fault(fault_id: str) -> None:
    """Put a fault of the catalogue in force for the rest of this process; nothing where the id is empty.

    Raises:
        OptionError: the catalogue has no such fault; the message gives the nearest id.
    """
    if not fault_id:
        return
    from fakes.patching import Patches

    from fakes.faults import CATALOGUE

    if fault_id not in CATALOGUE:
        near = difflib.get_close_matches(fault_id, CATALOGUE, n=3, cutoff=0.0)
        raise OptionError(
            f"--fault={fault_id}: no such fault; near names: {', '.join(near)}. 'accelerator-conformance faults' lists all {len(CATALOGUE)}"
        )
    CATALOGUE[fault_id].apply(Patches())


def load_callable(path: str, option: str) -> Callable[..., Any]:
    """The callable that `package.module:attribute` names.

    Raises:
        FactoryError: the text has another shape, the module cannot be imported, or the attribute is missing or not callable.
    """
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise FactoryError(f"{option}={path}: expected package.module:attribute, for example my_backend.adapter:make_accelerator")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise FactoryError(f"{option}={path}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise FactoryError(f"{option}={path}: {attribute} is a {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]


def _call_factory(factory: Callable[[], Any], path: str) -> Any:
    try:
        made = factory()
    except Exception as error:
        raise FactoryError(f"the factory of {path} raised {type(error).__name__}: {error}") from error
    if made is None:
        raise FactoryError(f"the factory of {path} returned None; it must return an accelerator object")
    return made


def why_unavailable(name: str, accelerator: Any) -> str | None:
    """Why no device of this backend can be used here, in words; None where one can."""
    try:
        available = accelerator.is_available()
    except Exception as error:  # noqa: BLE001 - a probe that raises is an answer too
        return f"{name}: is_available() raised {type(error).__name__}: {error}"
    if available:
        return None
    reason = getattr(accelerator, "unavailable_reason", None)
    return str(reason()) if callable(reason) else f"{name}: is_available() is false"


def fake_names() -> list[str]:
    """The names of the simulated machines, sorted; empty where this PyTorch is too old for them."""
    try:
        from fakes.personas import PERSONAS
    except ImportError:
        return []
    return sorted(FAKE_PREFIX + persona for persona in PERSONAS)


def known_names() -> list[str]:
    """Every name that `--backend` takes without further installation, sorted."""
    from harness.accelerator.registry import default_registry

    return sorted({*fake_names(), *default_registry().names(), "cpu"})


def unknown_backend_text(name: str) -> str:
    """The usage error for a name that nothing knows."""
    return f"--backend={name}: no backend has this name. Known names: {', '.join(known_names())}.\n{_THREE_WAYS}"
