"""Putting a simulated machine into this process, and taking it out.

For: `install`. Not for: what the machine then does.

What cannot be undone is done once a process: PyTorch's PrivateUse1 device gets the persona's name, its namespace and its factory
kernels. Everything else is a reversible patch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from fakes.errors import MachineInstalledError, UnknownPersonaError, UnsupportedTorchError
from fakes.machine import Machine, _current
from fakes.patching import Patches
from fakes.personas import PERSONAS, Persona
from fakes.scheduling.policies import Policy
from fakes.settings import Settings


def install(
    persona: str,
    *,
    devices: int = 2,
    memory: int | str | Sequence[int | str] = "8 GiB",
    schedule: str | Policy = "eager",
    seed: int = 0,
    detect_races: bool = False,
) -> Machine:
    """Give this process a simulated machine; until `Machine.uninstall()` its devices are real PyTorch devices.

    `persona` is a name in `fakes.personas.PERSONAS`. `devices` is the number of physical devices, 1 to 64. `memory` is the size
    of each (bytes, or a string such as `"8 GiB"`), or one size a device. `schedule` names the order in which work runs
    (`fakes.settings.SCHEDULES`), or is a policy of `fakes.scheduling.policies`; `seed` drives it. With `detect_races`, accesses that
    nothing orders raise `fakes.errors.RaceError`. A process has one persona for good; the same persona can be installed again after
    `uninstall()`, not before.

    Raises:
        UnknownPersonaError, MachineConfigurationError: a value out of range; nothing is installed.
        MachineInstalledError: a machine is installed (use its `reset`), or this process has had another persona.
        UnsupportedTorchError: this PyTorch cannot carry a simulated device.
    """
    description = PERSONAS.get(persona) if isinstance(persona, str) else None
    if description is None:
        raise UnknownPersonaError(f"unknown persona {persona!r}; known personas: {', '.join(sorted(PERSONAS))}")
    settings = Settings.validated(devices, memory, schedule, seed, detect_races)
    if _current.persona_name not in (None, persona):
        raise MachineInstalledError(
            f"this process already has the persona {_current.persona_name!r}, and can have one only; use another process for "
            f"{persona!r}"
        )
    if _current.machine is not None:
        raise MachineInstalledError(f"a {persona!r} machine is installed already; use its reset(), or uninstall() it first")
    _require_torch()
    _register_device_type(description)
    machine = Machine(description, settings)
    patches = Patches()
    try:
        _apply_patches(patches, machine)
    except BaseException:
        patches.undo()
        raise
    machine._uninstall = patches.undo
    return machine


def installed_machine() -> Machine | None:
    """The installed machine, or None."""
    return _current.machine


def _require_torch() -> None:
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # noqa: F401
    except ImportError:
        raise UnsupportedTorchError(
            f"simulated devices need PyTorch 2.10 or later, which has Python device backends; this is {torch.__version__}"
        ) from None


def _apply_patches(patches: Patches, machine: Machine) -> None:
    from fakes import compilation, management_library, parameters, pinned_memory, random_numbers, serialization, torch_patches

    before = dict(vars(torch))
    patches.set(_current, "machine", machine)
    for module in management_library.modules(machine):
        patches.set_item(sys.modules, module.__name__, module)
    torch_patches.apply(patches, machine)
    if torch.distributed.is_available():
        from fakes import transport

        transport.apply(patches, machine)
    parameters.apply(patches)
    serialization.apply(patches, machine)
    random_numbers.apply(patches)
    if "pinned_memory" in machine.persona.features:
        pinned_memory.apply(patches, machine)
    compilation.apply(patches)
    compilation.teach_script(patches, before)


_registered: list[torch.library.Library] = []


def _register_device_type(persona: Persona) -> None:
    """Name PyTorch's PrivateUse1 device for good."""
    if _current.persona_name is not None:
        return
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    from fakes import autocast, device_guard, factories, namespace

    if torch._C._get_privateuse1_backend_name() != "privateuseone":
        raise MachineInstalledError(
            f"PyTorch's PrivateUse1 device is {torch._C._get_privateuse1_backend_name()!r} in this process; a simulated "
            "machine needs it"
        )
    _setup_privateuseone_for_python_backend(
        persona.device_type, backend_module=namespace.build(persona), hook=_hooks(), device_guard=device_guard.make()
    )
    for name, module in vars(getattr(torch, persona.device_type)).items():
        if isinstance(module, type(sys)) and module.__name__ == f"torch.{persona.device_type}.{name}":
            sys.modules[module.__name__] = module
    _registered.extend(factories.register())
    if "amp" in persona.features:
        _registered.extend(autocast.register(persona.device_type))
    _current.persona_name = persona.name
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _after_fork_in_child() -> None:
    if _current.machine is not None:
        _current.machine.after_fork_in_child()


def _hooks() -> Any:
    # Made here, since older PyTorch has no such class and must still be able to import this package.
    class Hooks(torch._C._acc.PrivateUse1Hooks):
        def is_available(self) -> bool:
            return True

        def has_primary_context(self, dev_id: int) -> bool:
            return _current.machine is not None and dev_id in _current.machine.open_contexts

        def is_built(self) -> bool:
            return True

    return Hooks()
