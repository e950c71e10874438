"""What the backend and its devices say of themselves, asked in a child process.

For: device names, UUIDs and PCI ids, driver and runtime versions, capabilities with their evidence, the adapter and its configuration. A
runtime that crashes when it is asked takes a child down, not the run. Not for: what can be told without a device (`facts.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_LIBRARIES = ("pynvml", "pymtml")  # management libraries with NVML's Python interface
_LONGEST = 2000  # characters of an answer that are kept


def gather(make_accelerator: Callable[[], Any]) -> dict[str, Any]:
    """Everything that the backend tells, as JSON: keys `devices`, `driver`, `runtime`, `capabilities`, `adapter`, `module_digest`,
    `distribution`, `device_type`, `configuration`. What it does not tell is empty or left out."""
    accelerator = make_accelerator()
    device_type = str(getattr(accelerator, "device_type", ""))
    library_versions = dict(_driver_versions(device_type))
    return {
        **adapter_facts(accelerator),
        "devices": _devices(accelerator),
        "driver": library_versions.get("driver", ""),
        "runtime": _runtime(device_type),
        "capabilities": _capabilities(accelerator),
    }


def adapter_facts(accelerator: Any) -> dict[str, Any]:
    """What can be told of an adapter without asking its runtime."""
    kind = type(accelerator)
    module = sys.modules.get(kind.__module__)
    digest = None
    with contextlib.suppress(OSError, TypeError):
        digest = hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest()
    return {
        "adapter": f"{kind.__module__}.{kind.__qualname__}",
        "module_digest": digest,
        "distribution": _distribution(module.__name__ if module else ""),
        "device_type": str(getattr(accelerator, "device_type", "")),
        "configuration": _configuration(accelerator),
    }


def _configuration(accelerator: Any) -> dict[str, Any]:
    grammar = getattr(accelerator, "visible_devices_grammar", None)
    declared = getattr(accelerator, "declarations", {})
    found: dict[str, Any] = {
        "name": str(getattr(accelerator, "name", "")),
        "communication_backend": str(getattr(accelerator, "communication_backend_name", "")),
        "visible_devices_variables": [str(name) for name in getattr(grammar, "variables", ())],
    }
    with contextlib.suppress(AttributeError, TypeError):  # an adapter of any class
        found["declarations"] = {str(name): _short(answer.evidence) for name, answer in sorted(declared.items())}
    return found


def _distribution(module: str) -> str:
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    return f"{names[0]} {importlib.metadata.version(names[0])}" if names else ""


def _devices(accelerator: Any) -> list[dict[str, Any]]:
    try:
        if not accelerator.is_available():
            return []
        count = int(accelerator.device_count())
    except Exception:  # noqa: BLE001 - an adapter of any class; the checks of DEV report it
        return []
    return [{"index": index, **_device(accelerator, index)} for index in range(count)]


def _device(accelerator: Any, index: int) -> dict[str, Any]:
    """Name, UUID, PCI id and memory of a device, as far as its properties tell."""
    try:
        properties = accelerator.get_device_properties(index)
    except Exception:  # noqa: BLE001 - as above
        return {}
    uuid = getattr(properties, "uuid", None)
    memory = getattr(properties, "total_memory", None)
    found = {
        "name": _short(getattr(properties, "name", "")),
        "uuid": _short("" if uuid is None else uuid),
        "pci": _pci(properties),
        "memory": memory if type(memory) is int and memory >= 0 else None,
    }
    return {key: value for key, value in found.items() if value not in ("", None)}


def _pci(properties: Any) -> str:
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if not all(type(part) is int for part in parts):
        return ""
    domain, bus, device = parts
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def _driver_versions(device_type: str) -> Iterator[tuple[str, str]]:
    """The driver's version from a management library, else from PyTorch's namespace."""
    import torch

    if device_type in ("cuda", "musa"):
        for name in _LIBRARIES:
            with contextlib.suppress(Exception):
                library = importlib.import_module(name)
                library.nvmlInit()
                yield "driver", _short(library.nvmlSystemGetDriverVersion())
                return
    namespace = getattr(torch, device_type, None)
    with contextlib.suppress(Exception):
        yield "driver", _short(namespace.get_device_properties(0).driver_version)  # type: ignore[union-attr]


def _runtime(device_type: str) -> str:
    """The version of the runtime that PyTorch was built for or that the vendor's package tells."""
    import torch

    found = []
    names = {"cuda": ("cuda", "hip")}.get(device_type, (device_type,))
    for name in names:
        version = getattr(torch.version, name, None)
        if isinstance(version, str) and version:
            found.append(f"{name} {version}")
    with contextlib.suppress(Exception):
        found.append(f"{device_type} {_short(getattr(torch, device_type).version())}")
    return ", ".join(found)


def _capabilities(accelerator: Any) -> list[dict[str, Any]]:
    """Every capability as the adapter answers, with an independent probe's evidence where it is denied."""
    from conformance.capability_probes import probe_denial
    from harness.accelerator.capabilities import Capability

    facts = []
    for capability in sorted(Capability, key=lambda member: member.value):
        try:
            answer = accelerator.probe(capability)
            supported = bool(answer.supported)
            evidence = str(answer.evidence) if supported else str(probe_denial(accelerator, capability).evidence)
        except Exception as error:  # noqa: BLE001 - an adapter of any class; an answer that raises denies nothing
            supported, evidence = True, f"probe raised {type(error).__name__}: {error}"
        facts.append({"name": capability.value, "supported": supported, "evidence": _short(evidence)})
    return facts


def _short(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text[:_LONGEST]
