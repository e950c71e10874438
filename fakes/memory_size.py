"""Memory sizes as people write them.

For: `memory="8 GiB"`, and sizes in messages.
"""

from __future__ import annotations

import re

from fakes.errors import MachineConfigurationError

_UNITS = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*)\s*", re.ASCII)
_LARGEST = 1 << 62


def parse_memory_size(value: int | str) -> int:
    """The number of bytes in `8589934592`, `"8 GiB"`, `"512MiB"`, `"1.5GB"`; positive.

    Raises:
        MachineConfigurationError: anything else; the message quotes the value and says what is legal.
    """
    size = _bytes(value)
    if size is None or not 0 < size <= _LARGEST:
        raise MachineConfigurationError(
            f"memory={value!r} is not a memory size; give a positive number of bytes as an int, or a string such as '8 GiB' or "
            "'512MiB' "
            f"(units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)"
        )
    return size


def _bytes(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    match = _SIZE.fullmatch(value)
    if match is None or match["unit"].lower() not in _UNITS or len(match["number"]) > 30:
        return None
    unit = _UNITS[match["unit"].lower()]
    number = match["number"]
    return int(number) * unit if "." not in number else int(float(number) * unit)


def readable(size: int) -> str:
    """A size as PyTorch's messages have it: `1.50 GiB`."""
    for unit, divisor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= divisor:
            return f"{size / divisor:.2f} {unit}"
    return f"{size} bytes"
