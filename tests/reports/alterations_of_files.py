"""Alterations of a package's files: rendered ones, digests, signatures, and how `report.json` is written.

For: `test_alterations.py`. Not for: what the report says (`alterations_of_reports.py`), or archives (`test_safe_archive.py`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

from alterations import (
    FAILING,
    HARDWARE,
    KEY,
    OTHER_KEY,
    OTHER_RENDERER,
    Alteration,
    Document,
    Edit,
    Files,
    at,
    both,
    check_of,
    consistent,
    made,
    written,
)

from reports.rendering import FILES, REPORT, SIGNATURE, STATEMENT, render_all
from reports.signing import sign

_RENDERED = FILES[1:]


def _changed(name: str, files: Files, file: str, change: Callable[[bytes], bytes], *reasons: str, **more: bool) -> Alteration:
    return Alteration(f"{file} {name}", lambda: {**files, file: change(files[file])}, frozenset(reasons), **more)


def of_rendered_files() -> Iterator[Alteration]:
    """Bytes of rendered files edited; files removed and added."""
    for file in _RENDERED:
        size = len(HARDWARE[file])
        for place in sorted({0, size - 1, *range(1, size, max(1, size // 12))}):
            yield _changed(f"byte {place}", HARDWARE, file, lambda data, at=place: _flipped(data, at), "file-altered")
        changes: dict[str, Callable[[bytes], bytes]] = {
            "emptied": lambda data: b"",
            "cut": lambda data: data[: len(data) // 2],
            "with a line more": lambda data: data + b"\n",
            "with a space more": lambda data: data + b" ",
            "without its last byte": lambda data: data[:-1],
            "with Windows line ends": lambda data: data.replace(b"\n", b"\r\n"),
            "with a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
        }
        for name, change in changes.items():
            yield _changed(name, HARDWARE, file, change, "file-altered")
        yield Alteration(f"{file} of another run", lambda file=file: {**HARDWARE, file: FAILING[file]}, frozenset({"file-altered"}))
        yield Alteration(f"{file} removed", lambda file=file: _without(HARDWARE, file), frozenset({"file-missing"}))
    script = b"<script>alert(1)</script></body>"
    yield _changed("with a script", HARDWARE, "report.html", lambda data: data.replace(b"</body>", script), "file-altered")
    for name in ("README.md", "evil.sh", "report.json.bak", "report.htm", "statement.dsse.json.asc", "index.html", "0", "a" * 100):
        yield Alteration(f"{name[:30]} added", lambda name=name: {**HARDWARE, name: b"x"}, frozenset({"file-unexpected"}))
    yield Alteration("only the report", lambda: {REPORT: HARDWARE[REPORT]}, frozenset({"file-missing"}))


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def _without(files: Files, name: str) -> Files:
    return {other: data for other, data in files.items() if other != name}


def of_digests() -> Iterator[Alteration]:
    """Digests edited, by the same renderer and by another, where digests are all that can be checked."""
    for index, file in enumerate(FILES[:-1]):
        edit = _subject(index, lambda subject: subject["digest"].update(sha256="0" * 64))
        yield _changed(f"digest of {file}", HARDWARE, STATEMENT, edit, "file-altered")
        yield _changed(f"digest of {file}, by another renderer", OTHER_RENDERER, STATEMENT, edit, "digest")
        yield _changed("by another renderer", OTHER_RENDERER, file, lambda data: data + b"\n", "digest", others=file == REPORT)
        removed = _statement(lambda statement, index=index: statement["subject"].pop(index))
        yield _changed(f"without {file}, by another renderer", OTHER_RENDERER, STATEMENT, removed, "digest-missing")
        twice = _statement(lambda statement, index=index: statement["subject"].append(statement["subject"][index]))
        yield _changed(f"{file} twice, by another renderer", OTHER_RENDERER, STATEMENT, twice, "statement")
        renamed = _subject(index, lambda subject: subject.update(name="other"))
        yield _changed(
            f"{file} renamed, by another renderer", OTHER_RENDERER, STATEMENT, renamed, "digest-missing", "digest-unexpected"
        )
    for name, edit in {
        "of another type": lambda statement: statement.update(_type="x"),
        "of another predicate": lambda statement: statement.update(predicateType="x"),
        "without subjects": lambda statement: statement.pop("subject"),
        "with a number as digest": lambda statement: statement["subject"][0]["digest"].update(sha256=1),
        "with a list as subject": lambda statement: statement.update(subject=[[]]),
        "with text as subject": lambda statement: statement.update(subject="report.json"),
    }.items():
        yield _changed(f"{name}, by another renderer", OTHER_RENDERER, STATEMENT, _statement(edit), "statement")
    yield _changed("a list, by another renderer", OTHER_RENDERER, STATEMENT, lambda data: b"[]", "statement")
    yield _changed("no JSON, by another renderer", OTHER_RENDERER, STATEMENT, lambda data: b"{", "json-syntax")
    twice = lambda data: data.replace(b'{\n "_type"', b'{\n "_type": "x",\n "_type"', 1)  # noqa: E731
    yield _changed("with a key twice, by another renderer", OTHER_RENDERER, STATEMENT, twice, "json-duplicate-key")


def _statement(edit: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        statement = json.loads(data)
        edit(statement)
        return json.dumps(statement, indent=1).encode() + b"\n"

    return change


def _subject(index: int, edit: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    return _statement(lambda statement: edit(statement["subject"][index]))


def of_signatures() -> Iterator[Alteration]:
    """Signatures stripped, exchanged, damaged; forgeries that nothing else can show."""

    def signed(name: str, make: Callable[[], Files], *reasons: str) -> Alteration:
        return Alteration(f"signature: {name}", make, frozenset(reasons), keyed=True)

    def envelope(name: str, edit: Callable[[Any], object], *reasons: str) -> Alteration:
        return signed(name, lambda: {**HARDWARE, SIGNATURE: _statement(edit)(HARDWARE[SIGNATURE])}, *reasons)

    yield signed("stripped", lambda: _without(HARDWARE, SIGNATURE), "signature-missing")
    yield signed("by another key", lambda: {**HARDWARE, SIGNATURE: sign(HARDWARE[STATEMENT], OTHER_KEY)}, "signature")
    yield signed("over another run", lambda: {**HARDWARE, SIGNATURE: FAILING[SIGNATURE]}, "signature-other")
    yield signed("over nothing", lambda: {**HARDWARE, SIGNATURE: sign(b"{}", KEY)}, "signature-other")
    yield signed("over the report", lambda: {**HARDWARE, SIGNATURE: sign(HARDWARE[REPORT], KEY)}, "signature-other")
    payload = base64.b64encode(FAILING[STATEMENT]).decode()
    yield envelope("with another payload", lambda data: data.update(payload=payload), "signature")
    yield envelope("with another type", lambda data: data.update(payloadType="text/plain"), "signature")
    yield envelope("without signatures", lambda data: data.update(signatures=[]), "signature")
    yield envelope("with an empty signature", lambda data: data["signatures"][0].update(sig=""), "signature")
    yield envelope("with a wrong signature", lambda data: data["signatures"][0].update(sig="AAAA"), "signature")
    yield envelope("by a key of another id", lambda data: data["signatures"][0].update(keyid="0" * 64), "signature")
    yield envelope("with text as signatures", lambda data: data.update(signatures="x"), "signature")
    yield envelope("with numbers as signatures", lambda data: data.update(signatures=[1]), "signature")
    yield envelope("with no payload", lambda data: data.pop("payload"), "signature")
    yield envelope("with a payload of no base64", lambda data: data.update(payload="\u00e9"), "signature")
    yield envelope("with a number as payload", lambda data: data.update(payload=1), "signature")
    for place in range(3, 80, 11):
        yield envelope(f"digit {place} changed", lambda data, at=place: _spoil(data["signatures"][0], at), "signature")
    for name, data, reason in (
        ("no JSON", b"{", "json-syntax"),
        ("empty", b"", "json-syntax"),
        ("a list", b"[]", "signature"),
        ("null", b"null", "signature"),
        ("not UTF-8", b'{"payload": "\xff"}', "json-encoding"),
        ("with NaN", b'{"payload": NaN}', "json-number"),
        ("deep", b"[" * 1000 + b"]" * 1000, "json-depth"),
    ):
        yield signed(name, lambda data=data: {**HARDWARE, SIGNATURE: data}, reason)
    for name, edit in FORGERIES.items():
        yield signed(name, lambda edit=edit: {**consistent(FAILING, edit), SIGNATURE: FAILING[SIGNATURE]}, "signature-other")


def _spoil(signature: dict[str, str], place: int) -> None:
    sig = signature["sig"]
    signature["sig"] = sig[:place] + ("A" if sig[place] != "A" else "B") + sig[place + 1 :]


def _passed(clause_id: str) -> Edit:
    check = f"checks/{clause_id}"
    return both(
        at(f"{check}/outcome", "pass"),
        at(f"{check}/examples_run", 100),
        lambda document: [
            next(c for c in document["checks"] if c["name"] == check_of(clause_id)).pop(k, None) for k in ("said", "failure")
        ],
    )


_MADE_REAL = both(at("backend/simulated", False), at("backend/name", "musa"), at("run/argv/0", "--backend=musa"))
FORGERIES: dict[str, Edit] = {
    "a failed check made a pass": _passed("DEV-1"),
    "every failed stream made a pass": _passed("STR-3"),
    "a flaky check made a pass": _passed("RNG-2"),
    "simulated made real": _MADE_REAL,
    "simulated made real, and a check a pass": both(_MADE_REAL, _passed("DEV-1")),
    "another product": both(at("declared/product", "X200"), at("run/argv/4", "--product=X200")),
    "another driver": at("host/driver", "9.9"),
    "another device": at("host/devices/0/name", "Example X100"[:-1] + "1"),
    "another seed": at("run/seed", 8),
}
"""What no one can tell without a signature or a replay."""


def of_form() -> Iterator[Alteration]:
    """The same report, written in another way, every other file made from it."""
    data = HARDWARE[REPORT]
    document = json.loads(data)
    nulled = json.loads(data)
    nulled["run"]["ending"], nulled["checks"][0]["said"] = nulled["run"]["ending"], None
    forms = {
        "without indents": json.dumps(document).encode() + b"\n",
        "with other indents": json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n",
        "with sorted keys": json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True).encode() + b"\n",
        "without its last line end": data[:-1],
        "with two line ends": data + b"\n",
        "with a space first": b" " + data,
        "with Windows line ends": data.replace(b"\n", b"\r\n"),
        "with an escape": data.replace(b'"musa"', b'"m\\u0075sa"', 1),
        "with another number": data.replace(b"1234.5", b"1234.50", 1),
        "with an exponent": data.replace(b"1234.5", b"1.2345e3", 1),
        "with a null field": written(nulled),
    }
    for name, form in forms.items():
        assert form != data, name
        yield Alteration(f"{REPORT} {name}", lambda form=form: render_all(form), frozenset({"report-form"}))


def of_json() -> Iterator[Alteration]:
    """Files that are no JSON, or no report of this format: they cannot be read."""
    data = HARDWARE[REPORT]
    texts = {
        "a key twice": (data.replace(b'"backend": {', b'"backend": {"simulated": true,', 1), "json-duplicate-key"),
        "an outcome twice": (data.replace(b'"outcome": "pass"', b'"outcome": "fail", "outcome": "pass"', 1), "json-duplicate-key"),
        "NaN": (data.replace(b"1234.5", b"NaN", 1), "json-number"),
        "infinity": (data.replace(b"1234.5", b"1e999", 1), "json-number"),
        "a long integer": (data.replace(b'"seed": 7', b'"seed": 7' + b"0" * 500, 1), "json-number"),
        "a comment": (b"// x\n" + data, "json-syntax"),
        "a byte order mark": (b"\xef\xbb\xbf" + data, "json-syntax"),
        "UTF-16": (data.decode().encode("utf-16"), "json-encoding"),
        "half a surrogate": (data.replace(b'"musa"', b'"\\ud800"', 1), "json-encoding"),
        "nesting": (data.replace(b'"extra": {}', b'"extra": {"x": ' + b"[" * 200 + b"]" * 200 + b"}"), "json-depth"),
        "a long string": (data.replace(b'"musa"', b'"' + b"x" * (5 << 20) + b'"', 1), "json-string"),
        "half of it": (data[: len(data) // 2], "json-syntax"),
        "nothing": (b"", "json-syntax"),
        "a list": (b"[]", "report-format"),
        "null": (b"null", "report-format"),
        "the next version": (data.replace(b"report/1", b"report/2", 1), "report-format"),
        "no version": (data.replace(b' "format": "accelerator-conformance-report/1",\n', b"", 1), "report-format"),
        "a number as version": (data.replace(b'"accelerator-conformance-report/1"', b"1", 1), "report-format"),
    }
    for name, (text, reason) in texts.items():
        assert text != data, name
        yield _changed(f"with {name}", HARDWARE, REPORT, lambda data, text=text: text, reason, unreadable=True)
    yield Alteration("without report.json", lambda: _without(HARDWARE, REPORT), frozenset({"report-missing"}), unreadable=True)
    yield Alteration("nothing at all", dict, frozenset({"report-missing"}), unreadable=True)


def of_schema() -> Iterator[Alteration]:
    """Fields removed, added, and of another type, at every place of the schema."""
    document = _small()
    for path in _paths(document):
        for name, edit in (("removed", _remove(path)), ("made null", _set(path, None)), ("made an object", _set(path, {"x": 1}))):
            yield made(f"schema: {'/'.join(map(str, path))} {name}", _raw_small, FAILING, edit, "schema")
        if isinstance(_get(document, path), dict):
            yield made(
                f"schema: {'/'.join(map(str, path))} with a field more", _raw_small, FAILING, _set((*path, "xyz"), 1), "schema"
            )


def _small() -> Document:
    """Two clauses of each kind: the schema does not ask for more, and a violation is found sooner."""
    document: Document = json.loads(FAILING[REPORT])
    keep = {"DEV-1", "STR-3", "IPC-1"}
    document["clauses"] = [clause for clause in document["clauses"] if clause["id"] in keep]
    document["checks"] = [check for check in document["checks"] if check["name"] in {check_of(name) for name in keep}]
    document["capabilities"] = document["capabilities"][:1]
    return document


def _raw_small(files: Files, edit: Edit) -> Files:
    document = _small()
    edit(document)
    return {**files, REPORT: written(document)}


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of the document but those in free-form values, and of lists of one kind the first item only."""
    if path:
        yield path
    if path in (("extra",), ("backend", "configuration")) or path[-1:] == ("document",):
        return
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def _get(document: Document, path: tuple[Any, ...]) -> Any:
    place: Any = document
    for key in path:
        place = place[key]
    return place


def _set(path: tuple[Any, ...], value: Any) -> Edit:
    return lambda document: _get(document, path[:-1]).__setitem__(path[-1], value)


def _remove(path: tuple[Any, ...]) -> Edit:
    return lambda document: _get(document, path[:-1]).__delitem__(path[-1])
