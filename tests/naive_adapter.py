"""An adapter as a busy engineer would write it from the first document alone, for `--accelerator=naive_adapter:make`.

It has the methods that the document names, and the weaknesses that it invites: an empty variable read as unset, ids through
`int(float())`, local ids mapped a second time, a bare type that becomes `musa:musa`, the CPU's generator as a default, no range
check, a typo that reads as "not supported". `--accelerator=naive_adapter:without_<method>` is the same adapter unfinished.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch


class NaiveAccelerator:
    """MUSA, hastily."""

    name = "musa"
    device_type = "musa"
    communication_backend_name = "mccl"
    visible_devices_env = "MUSA_VISIBLE_DEVICES"

    def accelerator_module(self) -> Any:
        return torch.musa  # type: ignore[attr-defined]

    def is_available(self) -> bool:
        return bool(self.accelerator_module().is_available())

    # Devices

    def device(self, index: Any = None) -> torch.device:
        return torch.device(self.device_name(index))

    def device_name(self, index: Any = None) -> str:
        return f"{self.device_type}:{self.current_device() if index is None else index}"

    def set_device(self, index: Any) -> None:
        self.accelerator_module().set_device(index)

    def current_device(self) -> int:
        return int(self.accelerator_module().current_device())

    def device_count(self) -> int:
        return int(self.accelerator_module().device_count())

    def synchronize(self, device: Any = None) -> None:
        self.accelerator_module().synchronize(device)

    def get_device_properties(self, device: Any = None) -> Any:
        return self.accelerator_module().get_device_properties(device)

    def resolve_visible_device_id(self, physical_device_id: Any) -> int:
        raw = str(physical_device_id).strip()
        visible = os.environ.get(self.visible_devices_env)
        if not visible:
            return int(float(raw))
        ids = [entry.strip() for entry in visible.split(",") if entry.strip()]
        if raw in ids:
            return ids.index(raw)
        number = int(float(raw))
        if str(number) in ids:
            return ids.index(str(number))
        if 0 <= number < len(ids):
            return number
        raise RuntimeError(f"device id {raw} is not valid under {self.visible_devices_env}={visible}")

    # Streams and events

    @property
    def Stream(self) -> Any:  # noqa: N802
        return self.accelerator_module().Stream

    @property
    def Event(self) -> Any:  # noqa: N802
        return self.accelerator_module().Event

    def current_stream(self, device: Any = None) -> Any:
        return self.accelerator_module().current_stream(device)

    def default_stream(self, device: Any = None) -> Any:
        return self.accelerator_module().default_stream(device)

    def stream(self, stream: Any) -> Any:
        return self.accelerator_module().stream(stream)

    # Memory

    def empty_cache(self) -> None:
        self.accelerator_module().empty_cache()

    def ipc_collect(self) -> None:
        self.accelerator_module().ipc_collect()

    def set_allocator_expandable_segments(self) -> bool:
        if os.environ.get("SLIME_ENABLE_EXPANDABLE_SEGMENTS", "0") == "1":
            self.memory_module()._set_allocator_settings("expandable_segments:True")
            return True
        return False

    def mem_get_info(self, device: Any = None) -> Any:
        return self.accelerator_module().mem_get_info(device)

    def memory_allocated(self, device: Any = None) -> int:
        return int(self.accelerator_module().memory_allocated(device))

    def memory_reserved(self, device: Any = None) -> int:
        return int(self.accelerator_module().memory_reserved(device))

    def memory_module(self) -> Any:
        return self.accelerator_module().memory

    def attach_oom_observer(self, callback: Callable[..., None]) -> bool:
        self.accelerator_module()._MUSAC._musa_attach_out_of_memory_observer(callback)
        return True

    # Random numbers and autocast

    def manual_seed(self, seed: int) -> None:
        self.accelerator_module().manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        self.accelerator_module().manual_seed_all(seed)

    def initial_seed(self) -> int:
        return int(self.accelerator_module().initial_seed())

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state() if device is None else self.accelerator_module().get_rng_state(device)

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        if device is None:
            torch.set_rng_state(state)
        else:
            self.accelerator_module().set_rng_state(state, device)

    def autocast(self, *args: Any, **kwargs: Any) -> Any:
        return torch.autocast(self.device_type, *args, **kwargs)

    # The rest

    def supports(self, capability: str) -> bool:
        return capability in {"amp", "bf16", "fp16", "streams", "events", "rng", "device_memory", "device_properties"}

    def communication_backend(self, default: str = "nccl") -> str:
        return self.communication_backend_name if default == "nccl" else default

    def weight_update_backend(self, default: str = "nccl") -> str:
        return "cpu:gloo,musa:mccl" if default == "nccl" else default

    def distributed_device_id(self, index: Any = None) -> None:
        return None

    def post_import_torch(self) -> None:
        return None


make = NaiveAccelerator


class _Without:
    """The naive adapter without one attribute."""

    def __init__(self, missing: str) -> None:
        self._missing = missing
        self._whole = NaiveAccelerator()

    def __getattr__(self, name: str) -> Any:
        if name == self._missing:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._whole, name)


def __getattr__(name: str) -> Callable[[], object]:
    missing = name.removeprefix("without_")
    if missing == name or not hasattr(NaiveAccelerator, missing):
        raise AttributeError(f"no attribute {name!r}")
    return lambda: _Without(missing)
