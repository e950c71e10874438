"""What a backend lacks of the accelerator contract.

For: refusing an incomplete backend with the whole list, before its first use (SEL-13). Not for: whether what it has behaves (the
conformance suite), nor whether a device is there (`probes.py`).
"""

from __future__ import annotations

import inspect

from harness.accelerator.contract import Accelerator
from harness.errors import IncompleteAcceleratorError

_ABSENT = object()


def interface_names() -> tuple[str, ...]:
    """Every public method, property and required attribute of `Accelerator`, sorted."""
    return tuple(sorted({name for name in (*dir(Accelerator), *Accelerator.__annotations__) if not name.startswith("_")}))


def missing_interface(backend: object) -> tuple[str, ...]:
    """The sorted names of the interface that a backend's class or object lacks; empty where it is complete.

    Of a class with a constructor of its own the required attributes are not judged, since it may set them there; its object's are.
    Objects and classes that do not inherit from `Accelerator` are looked at in the same way, and must bring every public name. No
    property of the backend is evaluated, so nothing of a vendor's runtime is touched.
    """
    set_by_constructor = isinstance(backend, type) and inspect.getattr_static(backend, "__init__") is not object.__init__
    later = frozenset(Accelerator.__annotations__) if set_by_constructor else frozenset()
    return tuple(name for name in interface_names() if name not in later and _lacks(backend, name))


def require_interface(backend: object, what: str) -> None:
    """Refuse a class or object that lacks part of the interface; `what` opens the message.

    Raises:
        IncompleteAcceleratorError: with everything that is missing, in the message and in `missing`.
    """
    missing = missing_interface(backend)
    if missing:
        shown = backend.__qualname__ if isinstance(backend, type) else f"an object of type {type(backend).__qualname__}"
        raise IncompleteAcceleratorError(
            f"{what}: {shown} is not a complete Accelerator; missing: {', '.join(missing)}. Inherit from "
            "harness.accelerator.Accelerator and define each of them",
            missing,
        )


def _lacks(backend: object, name: str) -> bool:
    value = inspect.getattr_static(backend, name, _ABSENT)
    if value is _ABSENT:
        # A proxy may answer through `__getattr__`; nothing that is defined statically, a property say, is evaluated here.
        try:
            value = getattr(backend, name, _ABSENT)
        except Exception:  # noqa: BLE001 - whatever a proxy raises, the name is not there
            return True
    return value is _ABSENT or value is None or bool(getattr(value, "__isabstractmethod__", False))
