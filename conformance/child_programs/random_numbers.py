"""Programs about seeds and states as the first use of a device, each in a process of its own (RNG-2, RNG-4, RNG-9).

For: `test_random_numbers.py`. Each returns plain data, which the check judges. Not for: judging.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from conformance.accelerator_access import method
from conformance.programs.random_program import draw_numbers

_DEVICES = 4


def state_as_first_use(make_accelerator: Callable[[], Any], state: str | None = None) -> dict[str, Any]:
    """Read the state of the last device as the first use of any, or restore `state` (hexadecimal); then draw there.

    Reports what was drawn, what was drawn after restoring the state again, then the state and what is drawn from there on.
    """
    accelerator = make_accelerator()
    device = min(int(method(accelerator, "device_count")()), _DEVICES) - 1
    if state is None:
        held = method(accelerator, "get_rng_state")(device)
    else:
        held = torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8)
        method(accelerator, "set_rng_state")(held, device)
    place = method(accelerator, "device")(device)
    drawn = draw_numbers("rand", 6, place)
    method(accelerator, "set_rng_state")(held, device)
    again = draw_numbers("rand", 6, place)
    later = method(accelerator, "get_rng_state")(device)
    return {"drawn": drawn, "again": again, "later": bytes(later.tolist()).hex(), "next": draw_numbers("rand", 6, place)}


def seed_all_devices(make_accelerator: Callable[[], Any], seed: int, used: bool) -> dict[str, Any]:
    """`manual_seed_all(seed)` before any use, or with only device 0 in use; then what each device draws.

    `due` is what each draws after it was made current and seeded by itself.
    """
    accelerator = make_accelerator()
    devices = range(min(int(method(accelerator, "device_count")()), _DEVICES))
    if used:
        torch.rand(3, device=method(accelerator, "device")(0))
    method(accelerator, "manual_seed_all")(seed)
    drawn = [draw_numbers("rand", 6, method(accelerator, "device")(device)) for device in devices]
    due = []
    for device in devices:
        method(accelerator, "set_device")(device)
        method(accelerator, "manual_seed")(seed)
        due.append(draw_numbers("rand", 6, method(accelerator, "device")(device)))
    return {"drawn": drawn, "due": due}


def seed_many_times(make_accelerator: Callable[[], Any], times: int) -> dict[str, Any]:
    """Seed `times` times before any use, one device and all in turn; then draw.

    Reports how many more blocks of Python's memory are in use than after the first hundred, and what was drawn; `due` is what the
    last seed gives in the end.
    """
    accelerator = make_accelerator()
    method(accelerator, "manual_seed")(0)
    for number in range(100):
        _seed(accelerator, number)
    before = sys.getallocatedblocks()
    for number in range(times):
        _seed(accelerator, number)
    grown = sys.getallocatedblocks() - before
    place = method(accelerator, "device")()
    drawn = draw_numbers("rand", 6, place)
    _seed(accelerator, times - 1)
    return {"grown": grown, "drawn": drawn, "due": draw_numbers("rand", 6, place)}


def _seed(accelerator: Any, number: int) -> None:
    accelerator.manual_seed_all(number)
    accelerator.manual_seed(number + 1)
