"""Programs about selecting the backend under test, each in a process of its own (SEL-10, SEL-14).

For: `conformance/test_selection_in_processes.py`. Nothing of the library is imported before a program starts. Not for: vendors' patches
(`vendor_patches.py`) and packages that are not there (`shims.py`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.child_main import ChildBackend


def importing(make_accelerator: ChildBackend) -> dict[str, Any]:
    """Import the library, make the adapter and list what is registered; which device runtimes did that initialise?"""
    import torch

    before = _initialized_runtimes(torch)
    make_accelerator()
    import harness.accelerator

    names = harness.accelerator.registered_accelerators()
    return {"names": list(names), "initialized": sorted(_initialized_runtimes(torch) - before)}


def selecting(make_accelerator: ChildBackend) -> dict[str, Any]:
    """Select the backend under test by an explicit request, fork, and use a device in the child."""
    import torch

    accelerator = make_accelerator()
    before = _initialized_runtimes(torch)
    from harness.accelerator.selection import AcceleratorSelector

    registry = _registry_with(accelerator, make_accelerator)
    selected = AcceleratorSelector(registry, {"SLIME_ACCELERATOR": accelerator.name}).get()
    answer: dict[str, Any] = {"initialized": sorted(_initialized_runtimes(torch) - before)}
    child = os.fork()
    if child == 0:
        _use_device_and_exit(torch, selected)
    answer["child_status"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return answer


def _use_device_and_exit(torch: Any, accelerator: Any) -> None:
    try:
        signal.alarm(30)
        tensor = torch.arange(4, device=accelerator.device(0))
        accelerator.synchronize(0)
        os._exit(0 if tensor.cpu().tolist() == [0, 1, 2, 3] else 3)
    except BaseException as error:  # noqa: BLE001 - told by the exit status and the log
        print(f"in the forked child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(2)


def probing(make_accelerator: ChildBackend) -> dict[str, Any]:
    """Ask the probe of the backend under test twice; what did that change?"""
    import torch

    accelerator = make_accelerator()
    namespaces = [torch, getattr(torch, accelerator.device_type, None)]
    probe = _probe_of(accelerator, make_accelerator)
    before = _state(namespaces)
    initialized = _initialized_runtimes(torch)
    answers = [bool(probe()), bool(probe())]
    after = _state(namespaces)
    return {
        "answers": answers,
        "initialized": sorted(_initialized_runtimes(torch) - initialized),
        "changed": {part: _difference(before[part], after[part]) for part in before},
    }


def _state(namespaces: list[Any]) -> dict[str, Mapping[str, int | str]]:
    allowed = {*sys.stdlib_module_names, "torch", "harness", "conformance", "fakes"}
    public = {
        f"{namespace.__name__}.{name}": id(value)
        for namespace in namespaces
        if namespace is not None
        for name, value in vars(namespace).items()
        if not name.startswith("_")
    }
    modules = {name: id(module) for name, module in sys.modules.copy().items() if name.partition(".")[0] not in allowed}
    return {"environment": dict(os.environ), "modules": modules, "attributes": public}


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _initialized_runtimes(torch: Any) -> set[str]:
    """The device types whose namespace says that its runtime is initialised."""
    found = set()
    for name, namespace in vars(torch).copy().items():
        is_runtime = callable(getattr(namespace, "is_initialized", None)) and callable(getattr(namespace, "device_count", None))
        if is_runtime and namespace.is_initialized():
            found.add(name)
    return found


def _registry_with(accelerator: Any, make_accelerator: ChildBackend) -> Any:
    """The library's own registry where it makes this backend, else one that has this backend alone."""
    from harness.accelerator.default import REGISTRY
    from harness.accelerator.registry import AcceleratorRegistry

    registration = REGISTRY.find(accelerator.name)
    if registration is not None and type(registration.new_accelerator()) is type(accelerator):
        return REGISTRY
    registry = AcceleratorRegistry()
    registry.register(accelerator.name, make_accelerator)
    return registry


def _probe_of(accelerator: Any, make_accelerator: ChildBackend) -> Any:
    """The registration's probe, or the accelerator's own where it is registered without one."""
    from harness.accelerator.registration import resolve_reference

    registration = _registry_with(accelerator, make_accelerator).get(accelerator.name)
    return accelerator.is_available if registration.is_available is None else resolve_reference(registration.is_available)
