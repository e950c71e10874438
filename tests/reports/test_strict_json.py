"""JSON from strangers: what is ambiguous or costly is refused with its reason and its place."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.errors import StrictJsonError
from reports.strict_json import JsonLimits, parse

_SMALL = JsonLimits(size=2000, string=50, values=100, depth=8)

_REFUSED: list[tuple[bytes, str, str]] = [  # document, reason, part of the message
    (b'{"a": 1, "b": 2, "a": 3}', "json-duplicate-key", "r.json: the key 'a' stands twice"),
    (b'{"a": {"b": [0, {"c": 1, "c": 1}]}}', "json-duplicate-key", "r.json/a/b/1: the key 'c'"),
    (b'{"a": 1, "\\u0061": 1}', "json-duplicate-key", "'a' stands twice"),
    (b'{"\\u001b[2J": 1, "\\u001b[2J": 1}', "json-duplicate-key", "x1b[2J"),
    (b'{"a": {"x": NaN, "x": 1}}', "json-duplicate-key", "r.json/a"),
    (b'{"a": [1, NaN]}', "json-number", "r.json/a/1: NaN is no JSON"),
    (b"-Infinity", "json-number", "-Infinity"),
    (b'{"a": 1e999}', "json-number", "r.json/a: 1e999 is no finite number"),
    (b'{"a": 1' + b"0" * 500 + b"}", "json-number", "an integer of 501 characters"),
    (b"1" + b"0" * 1500 + b".5e1", "json-number", "no finite number"),
    (b"[" * 9 + b"]" * 9, "json-depth", "nested 9 deep; at most 8"),
    (b'{"[[[[[[[[[": ' + b'{"a":' * 9 + b"1" + b"}" * 10, "json-depth", "nested 10 deep"),
    (b'"\\"]]]]", ' + b"[" * 9, "json-depth", "nested 9 deep"),
    (b"[" + b"1," * 200 + b"1]", "json-size", "more than 100 values"),
    (b" " * 2001, "json-size", "2001 bytes; at most 2000"),
    (b'["' + b"x" * 51 + b'"]', "json-string", "more than 50 bytes"),
    (b'["' + b'\\"' * 51 + b'"]', "json-string", "more than 50 bytes"),
    (b'{"' + b"\\\\" * 51 + b'": 1}', "json-string", "more than 50 bytes"),
    (b'{"a": "\xff"}', "json-encoding", "byte 7: this is not UTF-8"),
    (b'{"a": "\xed\xa0\x80"}', "json-encoding", "not UTF-8"),
    (b'{"a": ["\\ud800"]}', "json-encoding", "r.json/a/0: half a surrogate"),
    (b'{"\\udc00": 1}', "json-encoding", "half a surrogate"),
    (b"\xef\xbb\xbf{}", "json-syntax", "BOM"),
    ("{}".encode("utf-16"), "json-encoding", "not UTF-8"),
    (b'{"a": 1,}', "json-syntax", "r.json:1:"),
    (b"{'a': 1}", "json-syntax", "r.json:1:2"),
    (b'{"a": "\x1b[2J"}', "json-syntax", "control character"),
    (b'{"a": "x\x00"}', "json-syntax", "control character"),
    (b"{} {}", "json-syntax", "Extra data"),
    (b"", "json-syntax", "r.json:1:1"),
    (b'"\\', "json-syntax", "r.json"),
    (b'{"a": 01}', "json-syntax", "r.json"),
    (b"// no\n1", "json-syntax", "r.json:1:1"),
]


@pytest.mark.parametrize(("document", "reason", "text"), _REFUSED, ids=range(len(_REFUSED)))
def test_refused(document: bytes, reason: str, text: str) -> None:
    with pytest.raises(StrictJsonError) as caught:
        parse(document, "r.json", _SMALL)
    assert caught.value.reason == reason
    assert text in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "document",
    [
        b'["' + b"x" * 50 + b'"]',
        b'["' + b'\\"' * 25 + b'"]',
        b"[" * 8 + b"]" * 8,
        b'["[[[[[[[[[[[[[[[[[[", "{", "\\"[[[[[[[[[[["]',
        b'["\\ud83d\\ude00", -1000000000000000000000000000000, 1e308, "\\\\ud800"]',
    ],
)
def test_read(document: bytes) -> None:
    assert parse(document, "r.json", _SMALL) == json.loads(document)


_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, database=None)
@given(_JSON, st.booleans())
def test_whatever_json_writes_is_read(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    try:
        document = text.encode()
    except UnicodeEncodeError:
        return
    try:
        assert parse(document, "r.json") == value
    except StrictJsonError as error:
        assert "surrogate" in str(error)
        with pytest.raises(UnicodeEncodeError):
            json.dumps(value, ensure_ascii=False).encode()


@settings(max_examples=150, deadline=None, database=None)
@given(st.text(alphabet='[]{}":,\\ 1e-untrfalsx', max_size=40))
def test_nothing_that_json_refuses_is_read(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(StrictJsonError):
            parse(text.encode(), "r.json")
        return
    try:
        assert parse(text.encode(), "r.json") == expected
    except StrictJsonError as error:
        assert error.reason in ("json-duplicate-key", "json-number")


@pytest.mark.parametrize("unit", [b'"",', b'"\\"",', b"[],", b'{"a":', b'"\\\\', b"[", b'"', b"\\", b"1,"], ids=range(9))
def test_cost_is_linear_in_hostile_documents(unit: bytes) -> None:
    def cost(size: int) -> float:
        document = unit * (size // len(unit))
        started = time.process_time()
        with pytest.raises(StrictJsonError):
            parse(document, "r.json")
        return time.process_time() - started

    cost(1 << 16)
    assert cost(1 << 21) < 200 * cost(1 << 16) + 0.5  # 32 times as long: quadratic cost would be 1024 times
