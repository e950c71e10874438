"""Accelerators that have the whole interface and no device.

For: checks and tests of what registers and chooses accelerators. Not for: standing in for a device; that is what `fakes` is for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from harness.accelerator.contract import Accelerator


def complete_class(name: str = "stand-in", *, available: Any = True, without: Collection[str] = ()) -> type[Accelerator]:
    """A concrete class whose `is_available` answers or raises `available`; `without` leaves members out."""

    def is_available(_: Any) -> Any:
        if isinstance(available, BaseException):
            raise available
        return available

    members: dict[str, Any] = {member: lambda *_, **__: None for member in Accelerator.__abstractmethods__}
    members |= {
        "is_available": is_available,
        "name": name,
        "device_type": name,
        "communication_backend_name": f"{name}ccl",
        "visible_devices_grammar": object(),
    }
    return type("StandIn", (Accelerator,), {member: value for member, value in members.items() if member not in without})


def complete(name: str = "stand-in", **options: Any) -> Any:
    """An object of `complete_class`."""
    return complete_class(name, **options)()


class Factory:
    """A factory, probe or bootstrap that counts its calls; answers or raises `product`, a stand-in where None."""

    def __init__(self, product: Any = None) -> None:
        self.product = complete() if product is None else product
        self.calls = 0

    def __call__(self, *_: Any) -> Any:
        self.calls += 1
        if isinstance(self.product, BaseException):
            raise self.product
        return self.product
