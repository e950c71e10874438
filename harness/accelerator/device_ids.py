"""The two kinds of device id, and every form in which a caller may write one.

For: keeping physical and local ids apart by type (VIS-14), normalising what callers pass (VIS-6), and quoting it in errors. Not
for: the text of a visible-devices variable (`visible_devices_lists.py`) or device strings such as `"musa:1"` (`device_forms.py`).
"""

from __future__ import annotations

import re
import reprlib
from dataclasses import dataclass

from harness.errors import DeviceIdTypeError, VisibleDevicesError

_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_NEGATIVE = re.compile(r"-[0-9]+", re.ASCII)
LARGEST_NUMBER = 2**31 - 1
"""Drivers number devices with a C int."""
LONGEST_NUMBER = 4300
"""More digits than any number needs; `int` refuses longer text by default, and is quadratic in it otherwise."""


@dataclass(frozen=True)
class PhysicalDevice:
    """A row of the host's device table, as a management library tells it.

    `index`: the driver's number. `uuid`: in the form that the vendor's variable takes (`GPU-…`), or None where it is not known.
    `mig_uuids`: of the device's partitions.
    """

    index: int
    uuid: str | None = None
    mig_uuids: tuple[str, ...] = ()


class LocalDeviceId(int):
    """A device's index among the visible ones, from 0. Resolving it again checks its range and never maps it (VIS-14)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"LocalDeviceId({int(self)})"

    __str__ = int.__repr__


@dataclass(frozen=True)
class PhysicalDeviceId:
    """The number or UUID that the vendor's driver gives a device.

    `value` may be given in any form of VIS-6 and is kept as an int or as stripped text. Unlike a bare id it never stands for a
    local id.

    Raises:
        VisibleDevicesError: a negative, a fraction, NaN, infinity, an empty text, or a number of more than 4300 digits.
        DeviceIdTypeError: a bool, a `LocalDeviceId`, or any other type.
    """

    value: int | str

    def __post_init__(self) -> None:
        if isinstance(self.value, LocalDeviceId):
            raise DeviceIdTypeError(
                f"{self.value!r} is a local id; a physical id is the number or UUID that the driver gives a device"
            )
        object.__setattr__(self, "value", normalize_device_id(self.value))

    def __str__(self) -> str:
        return str(self.value)


def normalize_device_id(value: object) -> int | str:
    """The number, or the stripped text, that an id in any form of VIS-6 stands for.

    `3`, `"3"`, `" 3 "`, `3.0`, numpy integers and anything with `__index__` are 3; other text is taken as a UUID and returned
    stripped.

    Raises:
        VisibleDevicesError: a negative, a fraction, NaN, infinity, an empty text, or more than 4300 digits; the message quotes
        it. DeviceIdTypeError: a bool, None, a container or any other type; the message quotes it.
    """
    if isinstance(value, PhysicalDeviceId):
        return value.value
    if isinstance(value, str):
        return _number_or_text(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise VisibleDevicesError(f"{quote(value)} is not a device id: it is not a whole number; {_FORMS}")
        return _checked(int(value), value)
    if _is_bool(value) or not hasattr(value, "__index__"):
        raise DeviceIdTypeError(f"{quote(value)} ({type(value).__name__}) is not a device id; {_FORMS}")
    try:
        number = int(value.__index__())
    except Exception as error:
        raise DeviceIdTypeError(f"{quote(value)} ({type(value).__name__}) is not a device id: {error}; {_FORMS}") from error
    return _checked(number, value)


_FORMS = "use a whole number from 0 (3, '3', 3.0), a UUID, or the driver's own text for the device"


def _number_or_text(value: str) -> int | str:
    text = value.strip()
    if not text:
        raise VisibleDevicesError(f"{quote(value)} is not a device id: it is empty; {_FORMS}")
    if _NEGATIVE.fullmatch(text):
        raise VisibleDevicesError(f"{quote(value)} is not a device id: it is negative; {_FORMS}")
    if not _DIGITS.fullmatch(text):
        return text
    if len(text) > LONGEST_NUMBER:
        raise VisibleDevicesError(f"{quote(value)} is not a device id: no driver numbers devices so high; {_FORMS}")
    return _checked(int(text), value)


def _checked(number: int, value: object) -> int:
    if number < 0:
        raise VisibleDevicesError(f"{quote(value)} is not a device id: it is negative; {_FORMS}")
    return number


def _is_bool(value: object) -> bool:
    """Also numpy's and torch's booleans, which partly have `__index__`."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in {"bool", "torch.bool"}


class _Quoter(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 240


def quote(value: object) -> str:
    """`repr(value)`, shortened to about 240 characters with the length told; never raises."""
    if isinstance(value, str) and len(value) > 240:
        return f"{value[:200]!r}… ({len(value)} characters)"
    if isinstance(value, int) and value.bit_length() > 800:
        text = str(value) if value.bit_length() < 14_000 else hex(value)
        return f"{text[:40]}… (an int of {value.bit_length()} bits)"
    try:
        return _Quoter().repr(value)
    except Exception:  # noqa: BLE001 - repr is the caller's code, and this builds an error's text
        return f"an unprintable {type(value).__name__}"
