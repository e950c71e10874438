"""Faults of what makes process groups: a backend that is given by position or keyword, weight-update groups, device ids.

For: PGN-8 and PGN-9. Not for: what becomes of a backend string (`process_group.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.process_group import normalizer


def _none_becomes_transport(patches: Patches) -> None:
    right: Any = normalizer.with_normalized_backend

    def wrong(function: Any, arguments: Any, keywords: Any, accelerator: Any = None) -> Any:
        given, named = right(function, arguments, keywords, accelerator)
        position = normalizer.backend_position(function) or 0
        if named.get("backend") or given[position : position + 1] not in ((), (None,)):
            return given, named
        return given[:position], {**named, "backend": "gloo"}

    patches.set(normalizer, "with_normalized_backend", wrong)


def _only_by(keyword: bool) -> Callable[[Patches], None]:
    def apply(patches: Patches) -> None:
        right: Any = normalizer.with_normalized_backend

        def wrong(function: Any, arguments: Any, keywords: Any, accelerator: Any = None) -> Any:
            given, named = right(function, arguments, keywords, accelerator)
            return (arguments, named) if keyword else (given, keywords)

        patches.set(normalizer, "with_normalized_backend", wrong)

    return apply


def _first_position(patches: Patches) -> None:
    patches.set(normalizer, "backend_position", lambda _function: 0)


def _always_composite(patches: Patches) -> None:
    from harness.accelerator.musa import MUSAAccelerator

    patches.set(MUSAAccelerator, "weight_update_backend", lambda _self, _default="nccl": "cpu:gloo,musa:mccl")
    right: Any = normalizer.weight_update_backend
    patches.set(
        normalizer,
        "weight_update_backend",
        lambda backend="nccl", accelerator=None: (
            accelerator.weight_update_backend() if accelerator.device_type == "musa" else right(backend, accelerator)
        ),
    )


def _without_cpu_half(patches: Patches) -> None:
    from harness.accelerator.contract import Accelerator
    from harness.accelerator.musa import MUSAAccelerator

    patches.set(MUSAAccelerator, "weight_update_backend", Accelerator.weight_update_backend)


def _device_id_on_musa(patches: Patches) -> None:
    import torch

    from harness.accelerator.musa import MUSAAccelerator

    patches.set(MUSAAccelerator, "distributed_device_id", lambda _self, _index=None: torch.device("cpu", 0))


def _device_id_never(patches: Patches) -> None:
    patches.set(normalizer, "distributed_device_id", lambda _index=None, _accelerator=None: None)


def _device_id_as_index(patches: Patches) -> None:
    right = normalizer.distributed_device_id

    def wrong(index: Any = None, accelerator: Any = None) -> Any:
        device = right(index, accelerator)
        return None if device is None else device.index

    patches.set(normalizer, "distributed_device_id", wrong)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "pgn-none-becomes-a-backend",
        ("PGN-8",),
        "A group without a backend gets a fixed one instead of the default group's.",
        "B59",
        _none_becomes_transport,
    ),
    Fault("pgn-position-not-normalized", ("PGN-8",), "A backend given by position is passed on.", "seed", _only_by(keyword=True)),
    Fault("pgn-keyword-not-normalized", ("PGN-8",), "A backend given by keyword is passed on.", "derived", _only_by(keyword=False)),
    Fault(
        "pgn-wrong-position",
        ("PGN-8",),
        "The backend is looked for in the first place, as in init_process_group, and not in new_group's own.",
        "derived",
        _first_position,
    ),
    Fault(
        "pgn-weight-update-without-cpu",
        ("PGN-9",),
        "The weight-update group has no transport for CPU tensors.",
        "B62",
        _without_cpu_half,
    ),
    Fault(
        "pgn-weight-update-always-mixed",
        ("PGN-9",),
        "The weight-update group is mixed, whatever backend was asked for.",
        "derived",
        _always_composite,
    ),
    Fault(
        "pgn-device-id-on-musa",
        ("PGN-9",),
        "A device_id is given to a transport that takes none.",
        "seed",
        _device_id_on_musa,
    ),
    Fault("pgn-device-id-missing", ("PGN-9",), "No accelerator gets a device_id.", "B63", _device_id_never),
    Fault("pgn-device-id-as-index", ("PGN-9",), "The device_id is a bare index.", "derived", _device_id_as_index),
)
