"""Faults in random numbers: seeds, states, and whose generator it is (RNG).

For: the catalogue. Not for: the generators themselves.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply, nothing, replace_method
from fakes.patching import Patches
from harness.accelerator.namespace_random import NamespaceRandom

_adapter = partial(replace_method, NamespaceRandom)


def _narrow_seed(_accelerator: Any, right: Callable[..., None], seed: int) -> None:
    right(seed % 2**32)


def _no_negative_seed(_accelerator: Any, right: Callable[..., None], seed: int) -> None:
    if seed < 0:
        raise ValueError(f"seed {seed} must not be negative")
    right(seed)


def _everywhere(accelerator: Any, _right: Callable[..., None], seed: int) -> None:
    accelerator.manual_seed_all(seed)


def _here_only(accelerator: Any, _right: Callable[..., None], seed: int) -> None:
    accelerator.manual_seed(seed)


def _used_devices_only(accelerator: Any, right: Callable[..., None], seed: int) -> None:
    if accelerator._is_initialized():
        right(seed)


def _of_first_device(accelerator: Any, right: Callable[..., int]) -> int:
    before = accelerator.current_device()
    accelerator.set_device(0)
    try:
        return right()
    finally:
        accelerator.set_device(before)


_states: dict[int, torch.Tensor] = {}


def _one_buffer(accelerator: Any, right: Callable[..., torch.Tensor], device: Any = None) -> torch.Tensor:
    state = right(device)
    kept = _states.setdefault(accelerator.device_index(device), state)
    return kept.copy_(state)


def _on_default_device(_accelerator: Any, right: Callable[..., torch.Tensor], device: Any = None) -> torch.Tensor:
    return right(device).to(torch.get_default_device())


def _state_of_current(_accelerator: Any, right: Callable[..., torch.Tensor], _device: Any = None) -> torch.Tensor:
    return right(None)


def _sets_current(_accelerator: Any, right: Callable[..., None], state: Any, _device: Any = None) -> None:
    right(state, None)


def _lost_before_use(accelerator: Any, right: Callable[..., None], state: Any, device: Any = None) -> None:
    if accelerator._is_initialized():
        right(state, device)


def _cpus_state(_accelerator: Any, _right: Callable[..., torch.Tensor], _device: Any = None) -> torch.Tensor:
    return torch.default_generator.get_state()


def _made_to_fit(accelerator: Any, right: Callable[..., None], state: Any, device: Any = None) -> None:
    due = accelerator.get_rng_state(device)
    if isinstance(state, torch.Tensor) and state.dtype == torch.uint8 and state.numel() != due.numel():
        fitted = due.clone()
        fitted[: min(len(state), len(due))] = state[: len(due)]
        state = fitted
    right(state, device)


def _cast(_accelerator: Any, right: Callable[..., None], state: Any, device: Any = None) -> None:
    right(state.to(torch.uint8) if isinstance(state, torch.Tensor) else state, device)


def _reseeds_first(accelerator: Any, right: Callable[..., None], state: Any, device: Any = None) -> None:
    try:
        right(state, device)
    except (TypeError, ValueError):
        accelerator.manual_seed(0)
        raise


def _seeds_the_host(_accelerator: Any, right: Callable[..., None], seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    right(seed)


_queue: list[Any] = []


def _queued(accelerator: Any, right: Callable[..., None], seed: int) -> None:
    if not accelerator._is_initialized():
        _queue.append((seed, traceback.format_stack(limit=4)))
    right(seed)


def _first_seed_kept(accelerator: Any, right: Callable[..., None], seed: int) -> None:
    if accelerator._is_initialized() or not _queue:
        _queue.append(seed)
        right(seed)


def _apply_one_generator(patches: Patches) -> None:
    from fakes.machine import Machine

    original = Machine.initialize

    def initialize(self: Machine) -> Any:
        devices = original(self)
        for device in devices:
            device.generator = devices[0].generator
        return devices

    patches.set(Machine, "initialize", initialize)


def _apply_fork_saves_the_cpu_only(patches: Patches) -> None:
    original = torch.random.fork_rng

    @contextlib.contextmanager
    def fork_rng(devices: Any = None, enabled: bool = True, **_other: Any) -> Iterator[None]:
        del devices
        with original(devices=(), enabled=enabled):
            yield

    patches.set(torch.random, "fork_rng", fork_rng)


def _apply_draws_on_the_host(patches: Patches) -> None:
    from fakes import dispatch

    original = dispatch._launch_random

    def launch(*arguments: Any) -> Any:
        torch.rand(1)
        return original(*arguments)

    patches.set(dispatch, "_launch_random", launch)


def _fault(name: str, clauses: tuple[str, ...], summary: str, apply: Apply, seen_in: str = "derived") -> Fault:
    return Fault(f"rng-{name}", clauses, summary, seen_in, apply)


FAULTS: tuple[Fault, ...] = (
    _fault("seed-ignored", ("RNG-1",), "`manual_seed` does nothing.", _adapter("manual_seed", nothing)),
    _fault("seed-all-ignored", ("RNG-1", "RNG-4"), "`manual_seed_all` does nothing.", _adapter("manual_seed_all", nothing)),
    _fault(
        "state-in-one-buffer", ("RNG-2",), "Every state of a device is the same tensor.", _adapter("get_rng_state", _one_buffer)
    ),
    _fault(
        "state-on-default-device",
        ("RNG-2",),
        "The state follows PyTorch's default device.",
        _adapter("get_rng_state", _on_default_device),
        "B126",
    ),
    _fault("state-not-restored", ("RNG-2",), "`set_rng_state` does nothing.", _adapter("set_rng_state", nothing), "B123"),
    _fault(
        "state-lost-before-first-use",
        ("RNG-2",),
        "A state that is restored as the first use of a device is lost.",
        _adapter("set_rng_state", _lost_before_use),
    ),
    _fault(
        "state-of-current-device",
        ("RNG-3",),
        "`get_rng_state` ignores its device.",
        _adapter("get_rng_state", _state_of_current),
        "B125",
    ),
    _fault(
        "state-set-on-current-device",
        ("RNG-3",),
        "`set_rng_state` ignores its device.",
        _adapter("set_rng_state", _sets_current),
        "B125",
    ),
    _fault("seed-everywhere", ("RNG-3",), "`manual_seed` seeds every device.", _adapter("manual_seed", _everywhere)),
    _fault("one-generator", ("RNG-3",), "All devices draw from one generator.", _apply_one_generator),
    _fault(
        "seed-all-here-only",
        ("RNG-4",),
        "`manual_seed_all` seeds the current device only.",
        _adapter("manual_seed_all", _here_only),
        "B125",
    ),
    _fault(
        "seed-all-after-first-use-only",
        ("RNG-4",),
        "`manual_seed_all` before first use is forgotten.",
        _adapter("manual_seed_all", _used_devices_only),
    ),
    _fault("seed-of-32-bits", ("RNG-5",), "`manual_seed` keeps the lower half of a seed.", _adapter("manual_seed", _narrow_seed)),
    _fault("negative-seed-refused", ("RNG-5",), "A negative seed is refused.", _adapter("manual_seed_all", _no_negative_seed)),
    _fault(
        "initial-seed-of-first-device",
        ("RNG-5",),
        "`initial_seed` is always device 0's.",
        _adapter("initial_seed", _of_first_device),
    ),
    _fault("seeds-the-host", ("RNG-6",), "`manual_seed` seeds the CPU's generator too.", _adapter("manual_seed", _seeds_the_host)),
    _fault("draws-on-the-host", ("RNG-6",), "A draw on the device advances the CPU's generator.", _apply_draws_on_the_host),
    _fault(
        "wrong-size-made-to-fit",
        ("RNG-7",),
        "A state of another size is cut or padded.",
        _adapter("set_rng_state", _made_to_fit),
    ),
    _fault("wrong-dtype-cast", ("RNG-7",), "A state of another dtype is cast.", _adapter("set_rng_state", _cast)),
    _fault(
        "refused-state-reseeds",
        ("RNG-7",),
        "A refused state leaves the generator seeded with 0.",
        _adapter("set_rng_state", _reseeds_first),
    ),
    _fault(
        "answers-with-the-cpus-state",
        ("RNG-8",),
        "`get_rng_state` is the CPU generator's state.",
        _adapter("get_rng_state", _cpus_state),
        "seed",
    ),
    _fault("fork-saves-the-cpu-only", ("RNG-8",), "`fork_rng` forgets the device.", _apply_fork_saves_the_cpu_only, "B115"),
    _fault(
        "seeds-pile-up",
        ("RNG-9",),
        "Every seed before first use is queued.",
        _adapter("manual_seed", _queued),
        "B127",
    ),
    _fault(
        "first-seed-kept",
        ("RNG-9",),
        "The first seed before first use wins over the latest.",
        _adapter("manual_seed", _first_seed_kept),
    ),
)
