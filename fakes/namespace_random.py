"""The random-number part of a simulated device's namespace.

For: `torch.<type>.manual_seed`, `get_rng_state` and their relatives. Not for: the generators (`random_numbers.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from fakes.machine import _current, current_machine
from fakes.random_numbers import DeviceGenerator

NAMES = (
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
)


def _generator(device: Any = None) -> DeviceGenerator:
    machine = current_machine()
    return machine.device(machine.device_index(device)).generator


def manual_seed(seed: int) -> None:
    """Seed the current device's generator; before first use the latest seed is kept for it."""
    machine = _current.machine
    if machine is not None:
        machine.seed(machine.current_device(), _checked(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every visible device's generator, also ones not yet used."""
    machine = _current.machine
    if machine is not None:
        machine.seed(None, _checked(seed))


def _checked(seed: Any) -> int:
    number: int = int(seed)
    if not -(1 << 63) <= number < 1 << 64:
        raise RuntimeError(f"Overflow when unpacking long long: seed {seed} is outside [-2**63, 2**64 - 1]")
    return number


def seed() -> None:
    """Seed the current device's generator with a random number."""
    _generator().seed()


def seed_all() -> None:
    """Seed every device's generator with one random number."""
    manual_seed_all(_generator().seed())


def initial_seed() -> int:
    """The current device's seed, modulo 2**64."""
    seed: int = _generator().initial_seed()
    return seed


def get_rng_state(device: Any = None) -> torch.Tensor:
    """A device's state: a one-dimensional CPU uint8 tensor."""
    state: torch.Tensor = _generator(device).get_state()
    return state


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Restore a state of `get_rng_state`."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices."""
    return [device.generator.get_state() for device in current_machine().initialize()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore the states of all devices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
