"""One entry of a visible-devices list: a number, a UUID, a sub-device, or text that names nothing (VIS-2, VIS-17).

For: the lexical part of each vendor's parser. Not for: whether the device exists (`visible_devices_lists.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from harness.accelerator.device_ids import LONGEST_NUMBER
from harness.accelerator.visible_devices_grammars import VariableSyntax

_LEADING_DIGITS = re.compile(r"[+-]?\d+")
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_CANONICAL_DECIMAL = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_C_INTEGER = re.compile(r"[+-]?(?:0[xX](?P<hexadecimal>[0-9a-fA-F]+)|(?P<octal>0[0-7]*)|(?P<decimal>[1-9][0-9]*))", re.ASCII)
_FULL_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_SUB_DEVICE = re.compile(r"(?P<device>[0-9]{1,9})\.(?P<part>[0-9]{1,9}(?:\.[0-9]{1,9})*)", re.ASCII)


@dataclass(frozen=True)
class SubDevice:
    """Part `part` (`1`, or `1.0` for a part of a part) of device number `device`."""

    device: int
    part: str


@dataclass(frozen=True)
class InvalidEntry:
    """An entry that names no device, and why."""

    reason: str


ParsedEntry: TypeAlias = "int | str | SubDevice | InvalidEntry"
"""A number, a UUID (or its start) as text, a sub-device, or neither."""
EntryParser: TypeAlias = Callable[[str], ParsedEntry]


def entry_parser(syntax: VariableSyntax, value: str) -> EntryParser:
    """The function that reads the entries of a list; where the first entry fixes the kind, `value` does so here."""
    if syntax.bare_uuid_length and "-" in value and len(value) >= syntax.bare_uuid_length:
        return lambda token: token if "-" in token else InvalidEntry("not a UUID, as the list's first entry is")
    if syntax.bare_uuids and _FULL_UUID.match(value):
        return lambda token: token if _FULL_UUID.fullmatch(token) else InvalidEntry("not a full UUID, as the first entry is")
    if syntax.kinds == "first":
        for prefix in syntax.uuid_prefixes:
            if value.startswith(prefix):
                return lambda token: (
                    token if token.startswith(prefix) else InvalidEntry(f"not a {prefix} id, as the first entry is")
                )
        return lambda token: parse_number(syntax, token)
    return lambda token: _parse_mixed(syntax, token)


def _parse_mixed(syntax: VariableSyntax, token: str) -> ParsedEntry:
    text = token.strip() if syntax.trims else token
    if any((text.upper() if syntax.ignores_case else text).startswith(prefix) for prefix in syntax.uuid_prefixes):
        return text
    return parse_number(syntax, token)


def parse_number(syntax: VariableSyntax, token: str) -> ParsedEntry:
    """The number or sub-device that an entry names, or why it names none."""
    text = token.strip() if syntax.trims else token
    if not text:
        return InvalidEntry("empty")
    if syntax.sub_devices and (match := _SUB_DEVICE.fullmatch(text)):
        return SubDevice(int(match["device"]), match["part"])
    number = _number(syntax, text)
    if number is None:
        return InvalidEntry("not a device number")
    return number if number >= 0 else InvalidEntry("negative")


def _number(syntax: VariableSyntax, text: str) -> int | None:
    if syntax.numbers == "c integer":
        return _c_integer(text)
    if syntax.numbers == "leading digits":
        match = _LEADING_DIGITS.match(text)
    else:
        match = (_DIGITS if syntax.numbers == "digits" else _CANONICAL_DECIMAL).fullmatch(text)
    if match is None or len(match[0].lstrip("+-")) > LONGEST_NUMBER:
        return None
    return int(match[0])


def _c_integer(text: str) -> int | None:
    match = _C_INTEGER.fullmatch(text)
    if match is None or len(text) > LONGEST_NUMBER:
        return None
    base = {"hexadecimal": 16, "octal": 8, "decimal": 10}[match.lastgroup or "decimal"]
    magnitude = int(match[match.lastgroup or "decimal"], base)
    return -magnitude if text.startswith("-") else magnitude


def is_terminator(token: str) -> bool:
    """Whether an entry is written to end a list, not to ask for a device: nothing, or a negative."""
    return not token.strip() or token.strip().startswith("-")


def starts_with(name: str, text: str, *, ignores_case: bool, bare_uuids: bool) -> bool:
    """Whether `text` is the start of the UUID `name`; with `bare_uuids`, also where only one of them has the prefix `GPU-`.

    Text without the prefix must then be a full UUID.
    """
    if ignores_case:
        name, text = name.upper(), text.upper()
    if name.startswith(text):
        return True
    bare_name, bare_text = _bare(name), _bare(text)
    return bare_uuids and bare_name is not None and bare_text is not None and bare_name.startswith(bare_text)


def _bare(text: str) -> str | None:
    if text.startswith("GPU-"):
        return text.removeprefix("GPU-")
    return text if _FULL_UUID.match(text) else None


def is_sub_device(text: str) -> bool:
    """Whether text is the name of a sub-device, which has no shorter form."""
    return _SUB_DEVICE.fullmatch(text) is not None
