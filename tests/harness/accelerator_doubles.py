"""Complete accelerators for tests of registry and selection: they have the whole interface and no device."""

from __future__ import annotations

from typing import Any

from harness.accelerator.contract import Accelerator


def complete_class(name: str = "double", *, available: Any = True, without: tuple[str, ...] = ()) -> type[Accelerator]:
    """A concrete class whose `is_available` answers or raises `available`; `without` leaves members out."""

    def is_available(self: Any) -> Any:
        if isinstance(available, BaseException):
            raise available
        return available

    members: dict[str, Any] = {member: lambda self, *_, **__: None for member in Accelerator.__abstractmethods__}
    members |= {
        "is_available": is_available,
        "name": name,
        "device_type": name,
        "communication_backend_name": f"{name}ccl",
        "visible_devices_grammar": object(),
    }
    return type("Double", (Accelerator,), {member: value for member, value in members.items() if member not in without})


def complete(name: str = "double", **options: Any) -> Any:
    """An object of `complete_class`."""
    return complete_class(name, **options)()


class Factory:
    """Counts its calls; answers or raises `product`."""

    def __init__(self, product: Any = None) -> None:
        self.product = complete() if product is None else product
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        if isinstance(self.product, BaseException):
            raise self.product
        return self.product
