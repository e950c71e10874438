"""The order in which a rank's simulated machine does its work.

For: programs whose result must not depend on it. Not for: what the orders are (`fakes.scheduling`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from conformance.ranks.rank_main import RankContext
from conformance.simulated import machine_here


@contextmanager
def order_of_work(context: RankContext, order: Mapping[str, Any]) -> Iterator[bool]:
    """Have a simulated machine follow an `order` (its `schedule` and `seed`; none is the usual one) inside the block, which must hold all
    tensors that it makes. The value is whether there is such a machine. A rank that raises inside is of no further use, and is replaced.
    """
    machine = machine_here()
    if machine is None or not order:
        yield machine is not None
        return
    usual = machine.settings
    _reset(context, machine, order["schedule"], order["seed"])
    yield True
    _reset(context, machine, usual.schedule, usual.seed)


def _reset(context: RankContext, machine: Any, schedule: Any, seed: int) -> None:
    machine.reset(schedule=schedule, seed=seed)
    context.accelerator.set_device(context.own_device.index)
