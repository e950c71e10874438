"""A hand-written namespace with the functions of `torch.cuda`, for tests of adapters.

For: counting what reaches the runtime. Not for: behaving like a device; that is what `fakes` is for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from harness.accelerator.claims import claims
from harness.accelerator.torch_namespace import TorchNamespaceAccelerator
from harness.accelerator.visible_devices import GRAMMARS

DEVICE_TYPE = "privateuseone"


class StubAccelerator(TorchNamespaceAccelerator):
    name = "stub"
    device_type = DEVICE_TYPE
    communication_backend_name = "stubccl"
    visible_devices_grammar = GRAMMARS["musa"]
    install_hint = "install the stub"
    oom_observer_owners = ("torch.privateuseone.extension",)
    declarations = claims("the stub")


class Generator:
    def __init__(self) -> None:
        self.seed = 0

    def manual_seed(self, seed: int) -> None:
        self.seed = seed


class Stream:
    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.device = device


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing = enable_timing


class StubNamespace:
    """Devices with a current index; `calls` lists what was asked of the runtime."""

    Stream = Stream
    Event = Event

    def __init__(self, devices: int = 2) -> None:
        self.devices = devices
        self.index = 0
        self.initialized = False
        self.calls: list[tuple[Any, ...]] = []
        self.states = {index: torch.full((16,), index, dtype=torch.uint8) for index in range(devices)}
        self.seeds: list[tuple[str, int]] = []
        self.memory = SimpleNamespace()
        self.refuse_states = False

    def _call(self, *call: Any) -> None:
        self.initialized = True
        self.calls.append(call)

    def is_initialized(self) -> bool:
        return self.initialized

    def init(self) -> None:
        self._call("init")

    def is_available(self) -> bool:
        return self.devices > 0

    def device_count(self) -> int:
        return self.devices

    def current_device(self) -> int:
        self._call("current_device")
        return self.index

    def set_device(self, index: int) -> None:
        self._call("set_device", index)
        self.index = index

    def synchronize(self, index: int) -> None:
        self._call("synchronize", index)

    def get_device_properties(self, index: int) -> Any:
        self._call("get_device_properties", index)
        return SimpleNamespace(name=f"stub {index}", total_memory=1024)

    def empty_cache(self) -> None:
        self._call("empty_cache")

    def ipc_collect(self) -> None:
        self._call("ipc_collect")

    def mem_get_info(self, index: int) -> tuple[int, int]:
        self._call("mem_get_info", index)
        return 10 + index, 100

    def memory_allocated(self, index: int) -> int:
        return 1 + index

    def memory_reserved(self, index: int) -> int:
        return 2 + index

    def max_memory_allocated(self, index: int) -> int:
        return 3 + index

    def max_memory_reserved(self, index: int) -> int:
        return 4 + index

    def reset_peak_memory_stats(self, index: int) -> None:
        self._call("reset_peak_memory_stats", index)

    def current_stream(self, index: int) -> Stream:
        self._call("current_stream", index)
        return Stream(torch.device(DEVICE_TYPE, index))

    def default_stream(self, index: int) -> Stream:
        self._call("default_stream", index)
        return Stream(torch.device(DEVICE_TYPE, index))

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.calls.append(("enter stream", stream))
        try:
            yield
        finally:
            self.calls.append(("exit stream", stream))

    def get_rng_state(self, device: torch.device) -> torch.Tensor:
        self._call("get_rng_state", device.index)
        return self.states[device.index]

    def set_rng_state(self, state: torch.Tensor, device: torch.device) -> None:
        self._call("set_rng_state", device.index)
        self.states[device.index] = state.clone()
        if self.refuse_states:
            self.refuse_states = False
            raise RuntimeError("not a state of this generator")

    def manual_seed(self, seed: int) -> None:
        self.seeds.append(("one", seed))

    def manual_seed_all(self, seed: int) -> None:
        self.seeds.append(("all", seed))

    def initial_seed(self) -> int:
        return -1

    def is_bf16_supported(self) -> bool:
        self._call("is_bf16_supported")
        return True

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]
