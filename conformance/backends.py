"""From the names on the command line to the backend under test.

For: finding what `--backend` and `--accelerator` mean, installing the simulated machine and the fault, and making adapters. Used in the
suite's process and in its child processes alike. Not for: deciding which checks run (`gating.py`).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from conformance.errors import BackendNameError, FactoryError, OptionError

FAKE_PREFIX = "fake-"
_SIMULATED_DEVICES = 2  # without --devices
USUAL_SCHEDULE = "eager"
"""The order of work on a simulated machine where a check does not ask for another: at once."""

_THREE_WAYS = """There are three ways to bring a backend:
  1. a device type that PyTorch knows (torch.get_device_module(NAME)): --backend=NAME, no code needed;
  2. an installed package with an entry point in the group 'accelerator_conformance.backends': --backend=<its name>;
  3. code of your own: --accelerator=package.module:factory, where factory() returns the accelerator object."""


@dataclass(frozen=True)
class BackendChoice:
    """What the user chose; plain data, so that it can be sent to a child process.

    `backend` is a name or empty (then `accelerator` names a factory that needs no simulated machine); `devices` is the number of devices
    to simulate or to use at most. `schedule` is the order of work on a simulated machine, empty for the usual one, and `seed` drives it.
    """

    backend: str = ""
    accelerator: str = ""
    devices: int | None = None
    fault: str = ""
    schedule: str = ""
    seed: int = 0

    @property
    def options(self) -> list[str]:
        """The options that choose the same, but for the order of work."""
        given = {"--backend": self.backend, "--accelerator": self.accelerator, "--devices": self.devices, "--fault": self.fault}
        return [f"{option}={value}" for option, value in given.items() if value]

    def as_data(self) -> dict[str, Any]:
        """The keyword arguments that make an equal choice."""
        return asdict(self)


@dataclass(frozen=True)
class PreparedBackend:
    """A backend that can make adapters in this process.

    `new_accelerator` returns a fresh adapter object through which no runtime call was made; `no_device_reason` says in words why no device
    can be used now, or None where one can.
    """

    name: str
    is_fake: bool
    new_accelerator: Callable[[], Any]
    no_device_reason: Callable[[], str | None]


def prepare_backend(choice: BackendChoice) -> PreparedBackend:
    """Install what the choice needs in this process and find its factory.

    Raises:
        BackendNameError: nothing has that name. FactoryError: the code behind the name cannot be loaded, or raises. OptionError: the fault
        does not exist, or the number of devices is not legal.
    """
    known = _find(choice)
    apply_fault(choice.fault)
    if choice.accelerator:
        factory = load_callable(choice.accelerator, "--accelerator")
        make = _Maker(f"--accelerator={choice.accelerator}", factory)
        accelerator = make()
        name = choice.backend or str(getattr(accelerator, "name", choice.accelerator))
        return PreparedBackend(name, known is not None and known.is_fake, make, lambda: why_unavailable(accelerator))
    if known is None:
        raise BackendNameError("neither --backend nor --accelerator was given")
    known.new_accelerator()
    return known


class _Maker:
    """Calls a factory and turns whatever it raises into one typed error."""

    def __init__(self, origin: str, factory: Callable[[], Any]) -> None:
        self._origin = origin
        self._factory = factory

    def __call__(self) -> Any:
        try:
            made = self._factory()
        except Exception as error:
            raise FactoryError(f"{self._origin}: the factory raised {type(error).__name__}: {error}") from error
        if made is None:
            raise FactoryError(f"{self._origin}: the factory returned None; it must return an accelerator object")
        return made


def _find(choice: BackendChoice) -> PreparedBackend | None:
    """The backend behind `--backend`, with the simulated machine installed where the name asks for one; None without a name."""
    name = choice.backend
    if not name:
        return None
    device_type = _install_fake(choice) if name.startswith(FAKE_PREFIX) else name
    found = _registered(name, device_type)
    if found is not None:
        return found
    if _is_torch_device_type(device_type):
        from harness.accelerator.generic import GenericAccelerator

        make = _Maker(f"--backend={name}", lambda: GenericAccelerator(device_type))
        return PreparedBackend(name, device_type != name, make, lambda: why_unavailable(make()))
    raise BackendNameError(unknown_backend_text(name))


def _install_fake(choice: BackendChoice) -> str:
    """Install the simulated machine; its device type."""
    name = choice.backend
    if name not in fake_names():
        raise BackendNameError(unknown_backend_text(name))
    import fakes
    from fakes.errors import FakesError

    try:
        machine = fakes.install(
            name.removeprefix(FAKE_PREFIX),
            devices=choice.devices or _SIMULATED_DEVICES,
            schedule=choice.schedule or USUAL_SCHEDULE,
            seed=choice.seed,
        )
    except FakesError as error:
        raise OptionError(str(error)) from error
    return machine.persona.device_type


def _registered(name: str, registered_name: str) -> PreparedBackend | None:
    """The backend that the reference's registry has under a name, its vendor's bootstrap run; None where it has none."""
    from harness.accelerator import default, selection
    from harness.accelerator.registration import resolve_reference
    from harness.errors import HarnessError, UnknownAcceleratorError

    try:
        registration = default.REGISTRY.get(registered_name)
        if registration.bootstrap is not None:
            resolve_reference(registration.bootstrap)(os.environ)
    except UnknownAcceleratorError:
        return None
    except HarnessError as error:
        raise FactoryError(f"--backend={name}: {error}") from error

    def no_device_reason() -> str | None:
        availability = selection.check_probe(registration)
        return None if availability else availability.reason

    make = _Maker(f"--backend={name}", registration.new_accelerator)
    return PreparedBackend(name, registered_name != name, make, no_device_reason)


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
    from fakes.faults import CATALOGUE
    from fakes.patching import Patches

    if fault_id not in CATALOGUE:
        near = difflib.get_close_matches(fault_id, CATALOGUE, n=3, cutoff=0.0)
        raise OptionError(
            f"--fault={fault_id}: no such fault; near names: {', '.join(near)}. 'accelerator-conformance faults' lists all {len(CATALOGUE)}"
        )
    CATALOGUE[fault_id].apply(Patches())


def fault_ends_process(fault_id: str) -> bool:
    """Whether a fault of the catalogue aborts, crashes or hangs the process that meets it; False without a fault."""
    if not fault_id:
        return False
    from fakes.faults import CATALOGUE

    return CATALOGUE[fault_id].ends_process


_CALLABLES: Mapping[str, tuple[tuple[str, ...] | None, str]] = MappingProxyType(
    {
        "--accelerator": ((), "a factory that needs no arguments, for example my_backend.adapter:make_accelerator"),
        "--aligner": (None, "an alignment function, for example my_framework.routing:align_routed_experts"),
        "--normalizer": (
            ("backend", "accelerator"),
            "a function(backend, accelerator) -> backend, for example my_framework.names:normalize_backend",
        ),
    }
)
"""What an option names: the arguments that it is called with (None: its caller finds out), and what it is in words."""


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """A callable's signature, where it has one that Python can tell."""
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def load_callable(path: str, option: str) -> Callable[..., Any]:
    """The callable that `package.module:attribute` names.

    Raises:
        FactoryError: the text has another shape, the module cannot be imported, or the attribute is missing, not callable or takes other
            arguments.
    """
    arguments, due = _CALLABLES[option]
    expected = f"expected package.module:attribute of {due}"
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise FactoryError(f"{option}={path}: {expected}")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        where = "; modules are looked for in this folder and on PYTHONPATH" if isinstance(error, ModuleNotFoundError) else ""
        raise FactoryError(f"{option}={path}: {type(error).__name__}: {error}; {expected}{where}") from error
    if not callable(found):
        raise FactoryError(f"{option}={path}: {attribute} is of type {type(found).__name__} and cannot be called; {expected}")
    signature = _signature(found)
    if arguments is not None and signature is not None:
        try:
            signature.bind(*arguments)
        except TypeError as error:
            raise FactoryError(f"{option}={path}: {attribute}{signature} cannot be called so: {error}; {expected}") from error
    return found  # type: ignore[no-any-return]


def why_unavailable(accelerator: Any) -> str | None:
    """Why an adapter says that no device can be used here, in words; None where one can, or where it has no way to say (DEV-6)."""
    if not hasattr(accelerator, "is_available"):
        return None
    try:
        available = accelerator.is_available()
    except Exception as error:  # noqa: BLE001 - a probe that raises is an answer too
        return f"is_available() raised {type(error).__name__}: {error}"
    return None if available else f"is_available() of {type(accelerator).__name__} is false"


def fake_names() -> list[str]:
    """The names of the simulated machines, sorted; empty where this PyTorch is too old for them."""
    try:
        from fakes.personas import PERSONAS
    except ImportError:
        return []
    return sorted(FAKE_PREFIX + persona for persona in PERSONAS)


def known_names() -> list[str]:
    """Every name that `--backend` takes without further installation, sorted."""
    from harness.accelerator import default

    return sorted({*fake_names(), *default.REGISTRY.names(), "cpu"})


def unknown_backend_text(name: str) -> str:
    """The usage error for a name that nothing knows."""
    return f"--backend={name}: no backend has this name. Known names: {', '.join(known_names())}.\n{_THREE_WAYS}"
