"""JSON from strangers, read once and strictly.

For: documents whose author may mean harm: what two readers could understand differently (duplicate keys, NaN, a number that overflows,
half a surrogate pair, a byte order mark) is refused, and so is what would cost a reader memory or stack (size, number of values, nesting,
long strings), before anything is built. Linear in the size of the document. Not for: whether the document says what a report must say
(the schema), nor for files that this project wrote itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from reports.errors import StrictJsonError
from reports.untrusted_text import printable

# Strings and what stands between them, up to the next bracket; bounded, since each repetition costs the matcher memory until it ends.
_NO_BRACKETS = re.compile(rb'(?:"[^"]*"[^"\[\]{}]*){1,1000}')
_STRING = re.compile(rb'"[^"]*"')
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_LONGEST_INTEGER = (
    400  # characters: a failing program may hold integers past 64 bits, and what is longer costs more than linear time
)


@dataclass(frozen=True)
class JsonLimits:
    """What a document may cost. `size` and `string` in bytes as written, `values` counts keys and values, `depth` nested brackets."""

    size: int = 64 << 20
    string: int = 4 << 20
    values: int = 4_000_000
    depth: int = 64


DEFAULT_LIMITS = JsonLimits()


@dataclass(frozen=True)
class _Flaw:
    """Stands in the document for a value that is refused, so that its place can be named."""

    reason: str
    message: str


def parse(data: bytes, name: str, limits: JsonLimits = DEFAULT_LIMITS) -> Any:
    """The value of the JSON document `data`; `name` is the file's name, for messages.

    Raises:
        StrictJsonError: it is no JSON, ambiguous, or past the limits; says where.
    """
    text = _checked_before_parsing(data, name, limits)
    flaws: list[_Flaw] = []

    def refuse(reason: str, message: str) -> _Flaw:
        flaws.append(_Flaw(reason, message))
        return flaws[-1]

    def an_object(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return refuse("json-duplicate-key", f"the key {printable(twice)!r} stands twice in one object")

    def an_integer(digits: str) -> Any:
        if len(digits) <= _LONGEST_INTEGER:
            return int(digits)
        return refuse("json-number", f"an integer of {len(digits)} characters; at most {_LONGEST_INTEGER} are read")

    def a_float(digits: str) -> Any:
        value = float(digits) if len(digits) < 400 else math.inf
        return value if math.isfinite(value) else refuse("json-number", f"{printable(digits, longest=30)} is no finite number")

    def a_constant(word: str) -> Any:
        return refuse("json-number", f"{word} is no JSON")

    try:
        value = json.loads(text, object_pairs_hook=an_object, parse_int=an_integer, parse_float=a_float, parse_constant=a_constant)
    except json.JSONDecodeError as error:
        raise StrictJsonError("json-syntax", f"{name}:{error.lineno}:{error.colno}", error.msg) from error
    except RecursionError as error:
        raise StrictJsonError("json-depth", name, "nested too deep") from error
    if flaws:
        _raise_first_flaw(value, name, flaws)
    if _HALF_PAIR.search(data):
        _refuse_half_pairs(value, name)
    return value


def _checked_before_parsing(data: bytes, name: str, limits: JsonLimits) -> str:
    """The text, once it is known that parsing it is cheap."""
    if len(data) > limits.size:
        raise StrictJsonError("json-size", name, f"{len(data)} bytes; at most {limits.size} are read")
    # Of the same length, and every quote left begins or ends a string: backslashes stand in strings only, or the parser stops there.
    unescaped = data.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    values = sum(map(unescaped.count, (b",", b"[", b"{", b":")))
    if values > limits.values:
        raise StrictJsonError("json-size", name, f"more than {limits.values} values")
    longest = max((len(match[0]) - 2 for match in _STRING.finditer(unescaped)), default=0) if len(data) > limits.string else 0
    if longest > limits.string:
        raise StrictJsonError("json-string", name, f"a string of more than {limits.string} bytes")
    brackets = _NO_BRACKETS.sub(b"", unescaped).translate(None, _NOT_BRACKETS)
    depth = max(accumulate(1 if bracket in b"[{" else -1 for bracket in brackets), default=0)
    if depth > limits.depth:
        raise StrictJsonError("json-depth", name, f"nested {depth} deep; at most {limits.depth} are read")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrictJsonError("json-encoding", f"{name}, byte {error.start}", "this is not UTF-8") from error


def _raise_first_flaw(value: Any, name: str, flaws: list[_Flaw]) -> None:
    # An object that was refused hides the flaws inside it.
    for pointer, found in _places(value):
        if isinstance(found, _Flaw):
            raise StrictJsonError(found.reason, f"{name}{pointer}", found.message)
    raise StrictJsonError(flaws[0].reason, name, flaws[0].message)


def _refuse_half_pairs(value: Any, name: str) -> None:
    for pointer, found in _places(value):
        texts = [*found] if isinstance(found, dict) else [found]
        for text in texts:
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                raise StrictJsonError("json-encoding", f"{name}{pointer}", "half a surrogate pair is no character")


def _places(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its JSON pointer, in the document's order."""
    yield pointer, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, f"{pointer}/{printable(key, longest=60)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, f"{pointer}/{index}")
