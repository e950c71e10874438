"""What a backend string means, told from its parts instead of from its text.

For: the checks of PGN, which write strings out of known parts and so know what must come out without parsing anything. Not for: the
grammar itself (`harness.process_group.backend_spec`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

Parts = tuple[tuple[str | None, str], ...]
"""Device (None in a bare name) and backend of each entry, in order, in lower case."""


@dataclass(frozen=True)
class Written:
    """A well-formed backend string: what was written, its parts, and whether it has spaces where PyTorch allows none."""

    text: str
    parts: Parts
    has_inner_spaces: bool = False


@dataclass(frozen=True)
class Names:
    """The two names of an accelerator that matter here."""

    device_type: str
    transport: str


def mapped(parts: Parts, names: Names) -> Parts | None:
    """The parts that the normalizer must return for an accelerator; None where it must refuse because two entries conflict."""
    if parts == ((None, "nccl"),):
        return ((None, names.transport),)
    answer: list[tuple[str | None, str]] = []
    for device, backend in parts:
        is_logical = backend == "nccl" and device in ("cuda", names.device_type)
        answer.append((names.device_type, names.transport) if is_logical else (device, backend))
    devices = [device for device, _ in answer]
    return tuple(answer) if len(set(devices)) == len(devices) else None


def merges_into_host(parts: Parts, names: Names) -> bool:
    """Whether the accelerator is the host itself and the string has its entry already, so that leaving one out is right too."""
    return names.device_type == "cpu" and ("cpu", names.transport) in parts and len(parts) > 1


def printed(parts: Parts) -> str:
    """The string that PyTorch reads as these parts."""
    return ",".join(backend if device is None else f"{device}:{backend}" for device, backend in parts)


def holds_accelerator(parts: Parts, transports: frozenset[str]) -> bool:
    """Whether a group of these parts holds an accelerator's communicator, `transports` being those of registered accelerators."""
    if parts[0][0] is None:
        return parts[0][1] in transports
    return any(device != "cpu" for device, _ in parts)


def devices_of(parts: Parts) -> dict[str, str]:
    """The map from device to backend that PyTorch must make of these parts."""
    device, backend = parts[0]
    if device is None:
        return dict.fromkeys(dist.Backend.backend_capability[backend], backend)
    return {str(device): backend for device, backend in parts}


def pytorch_reads(text: str) -> dict[str, str]:
    """The map from device to backend that this PyTorch makes of a string."""
    config = dist.distributed_c10d.BackendConfig(dist.Backend(text))
    return {device: str(backend) for device, backend in config.get_device_backend_map().items()}


@contextmanager
def registered_transports(devices: Mapping[str, str]) -> Iterator[None]:
    """A context in which PyTorch knows these backends, each for its device, and afterwards what it knew before.

    Backends that PyTorch has already are left as they are.
    """
    tables: list[Any] = [
        dist.Backend.backend_capability,
        dist.Backend.default_device_backend_map,
        dist.Backend.backend_type_map,
        dist.Backend._plugins,
    ]
    kept, names = [dict(table) for table in tables], list(dist.Backend.backend_list)
    new = [backend for backend in devices if backend not in names]
    try:
        for backend in new:
            dist.Backend.register_backend(backend, _creates_nothing, devices=[devices[backend]])
        yield
    finally:
        for table, before in zip(tables, kept, strict=True):
            table.clear()
            table.update(before)
        dist.Backend.backend_list[:] = names
        for backend in new:
            if hasattr(dist.Backend, backend.upper()):
                delattr(dist.Backend, backend.upper())


def _creates_nothing(*_arguments: Any) -> None:
    raise NotImplementedError("this transport is registered by name only")
