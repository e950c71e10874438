"""Random numbers of a simulated device.

For: the generator of each device, independent of the CPU's and of each other. Not for: seeding from the namespace (`namespace.py`).
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from fakes.patching import Patches

DEFAULT_SEED = 67280421310721
"""The seed that PyTorch gives every generator at the start."""
_cpu_generator_lock = threading.RLock()
_TorchGenerator: Any = torch.Generator


class DeviceGenerator(_TorchGenerator):  # type: ignore[misc]
    """A `torch.Generator` that says that it is on a simulated device; the numbers come from PyTorch's CPU algorithm."""

    def __new__(cls, device: torch.device) -> DeviceGenerator:
        generator: DeviceGenerator = _TorchGenerator.__new__(cls, device="cpu")
        generator._device = device
        _live_generators[generator._cdata] = generator
        return generator

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.manual_seed(DEFAULT_SEED)

    @property
    def device(self) -> torch.device:
        """The device that it belongs to."""
        return self._device

    def graphsafe_get_state(self) -> Any:
        """Simulated devices record no graphs."""
        raise RuntimeError("a simulated device records no graphs")

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle a generator of a simulated device; save its get_state()")


_live_generators: weakref.WeakValueDictionary[int, DeviceGenerator] = weakref.WeakValueDictionary()


def device_generator(generator: torch.Generator) -> DeviceGenerator | None:
    """The device generator behind a generator that came through PyTorch, which makes a new Python object; None for the CPU's."""
    return _live_generators.get(generator._cdata)  # type: ignore[attr-defined]


def with_generator_as_default(generator: DeviceGenerator, kernel: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Run a kernel that takes no generator with `generator` in place of the CPU's, which stays as it was."""
    default = torch.default_generator
    with _cpu_generator_lock:
        saved = default.get_state()
        default.set_state(generator.get_state())
        try:
            return kernel(*args, **kwargs)
        finally:
            generator.set_state(default.get_state())
            default.set_state(saved)


_FUNCTIONS = ("bernoulli", "multinomial", "normal", "rand", "randint", "randn", "randperm")
_METHODS = ("bernoulli_", "exponential_", "normal_", "random_", "uniform_")


def apply(patches: Patches) -> None:
    """Have the CPU refuse a device's generator, which by its C++ type is one of its own."""
    for owner, names in ((torch, _FUNCTIONS), (torch.Tensor, _METHODS)):
        for name in names:
            patches.set(owner, name, _refusing_other_generators(getattr(owner, name)))


def _refusing_other_generators(draw: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(draw)
    def call(*args: Any, **kwargs: Any) -> Any:
        generator = kwargs.get("generator") if kwargs else None
        if not isinstance(generator, DeviceGenerator):
            return draw(*args, **kwargs)
        before = generator.get_state()
        result = draw(*args, **kwargs)
        if result.device.type == "cpu":
            generator.set_state(before)
            raise RuntimeError(f"Expected a 'cpu' device type for generator but found '{generator.device.type}'")
        return result

    return call
