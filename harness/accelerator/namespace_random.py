"""Random numbers through a `torch.<type>` namespace.

For: seeds and states with the checks that namespaces leave out (RNG-2, RNG-5, RNG-7), and seeds given before first use (RNG-9).
Not for: the generators themselves."""

from __future__ import annotations

import operator
import threading
from typing import Any

import torch

from harness.accelerator.capabilities import Capability
from harness.accelerator.device_forms import DeviceLike
from harness.accelerator.namespace_access import NamespaceAccess

_SMALLEST_SEED = -(2**63)
_SEEDS = 2**64


class NamespaceRandom(NamespaceAccess):
    """The random-number part of a delegating backend."""

    random_state_sizes: tuple[int, ...] = ()
    """Sizes in bytes of states that the backend takes besides the size that it gives."""

    _pending_seeds: _PendingSeeds | None = None

    def manual_seed(self, seed: int) -> None:
        self._seed("manual_seed", seed)

    def manual_seed_all(self, seed: int) -> None:
        self._seed("manual_seed_all", seed)

    def initial_seed(self) -> int:
        function = self._require("initial_seed", Capability.RNG)
        self._enter_runtime()
        return int(function()) % _SEEDS

    def get_rng_state(self, device: DeviceLike = None) -> torch.Tensor:
        function = self._require("get_rng_state", Capability.RNG)
        return self._get_state(function, self.device(device))

    def set_rng_state(self, state: torch.Tensor, device: DeviceLike = None) -> None:
        get_state = self._require("get_rng_state", Capability.RNG)
        set_state = self._require("set_rng_state", Capability.RNG)
        target = self.device(device)
        _check_state_type(state)
        # Reading the state first initialises the device, so that the new state is set now and not put into a queue.
        before = self._get_state(get_state, target)
        sizes = {before.numel(), *self.random_state_sizes}
        if state.numel() not in sizes:
            raise ValueError(
                f"a random state of {state.numel()} bytes is not one of {target}, whose states have "
                f"{' or '.join(str(size) for size in sorted(sizes))} bytes; use a state of get_rng_state"
            )
        try:
            set_state(state.contiguous(), target)
        except Exception:
            set_state(before, target)
            raise

    def _get_state(self, function: Any, device: torch.device) -> torch.Tensor:
        self._enter_runtime()
        # A caller's default device would otherwise catch the tensor that holds the state.
        with torch.device("cpu"):
            state: torch.Tensor = function(device)
            return state.to("cpu", copy=True)

    def _seed(self, name: str, seed: int) -> None:
        function = self._require(name, Capability.RNG)
        value = checked_seed(seed)
        namespace = self.accelerator_module()
        if self._is_initialized() or not _PendingSeeds.are_needed(namespace):
            function(value)
            return
        if self._pending_seeds is None:
            self._pending_seeds = _PendingSeeds(namespace)
        self._pending_seeds.put(name, value)


class _PendingSeeds:
    """The latest seeds of a namespace that queues every call until its runtime is initialised, in one queued call (RNG-9)."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace
        self._seeds: dict[str, int] = {}
        self._lock = threading.Lock()

    @staticmethod
    def are_needed(namespace: Any) -> bool:
        """True where seeds are queued without bound: a queue, and none of PyTorch's trackers of the latest seeds."""
        return (
            hasattr(namespace, "_lazy_call")
            and not hasattr(namespace, "_lazy_seed_tracker")
            and hasattr(namespace, "default_generators")
        )

    def put(self, name: str, seed: int) -> None:
        with self._lock:
            is_queued = bool(self._seeds)
            if name == "manual_seed_all":
                self._seeds.clear()
            self._seeds[name] = seed
        if not is_queued:
            self._namespace._lazy_call(self._apply)

    def _apply(self) -> None:
        # The namespace's own functions would queue themselves again while it initialises.
        with self._lock:
            seeds = dict(self._seeds)
            self._seeds.clear()
        generators = self._namespace.default_generators
        if "manual_seed_all" in seeds:
            for generator in generators:
                generator.manual_seed(seeds["manual_seed_all"])
        if "manual_seed" in seeds:
            generators[self._namespace.current_device()].manual_seed(seeds["manual_seed"])


def checked_seed(seed: int) -> int:
    """The seed modulo 2⁶⁴, as PyTorch takes negative ones (RNG-5).

    Raises:
        TypeError: not an integer.
        ValueError: outside −2⁶³ ≤ seed < 2⁶⁴.
    """
    value = operator.index(seed)
    if not _SMALLEST_SEED <= value < _SEEDS:
        raise ValueError(f"seed {value} is outside the range that PyTorch takes: -2**63 <= seed < 2**64")
    return value % _SEEDS


def _check_state_type(state: object) -> None:
    if not isinstance(state, torch.Tensor):
        raise TypeError(f"a random state is a tensor of get_rng_state, not {state!r} ({type(state).__name__})")
    if state.dtype != torch.uint8 or state.device.type != "cpu" or state.dim() != 1:
        raise TypeError(
            "a random state is a one-dimensional uint8 tensor on the CPU, "
            f"not a {state.dim()}-dimensional one of {state.dtype} on {state.device}"
        )
