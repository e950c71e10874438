"""Steps about the package's files: which there are, whether they are what the report makes, who signed.

For: `examining.py`. Not for: what the report says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from reports import rendering
from reports.errors import RenderingError, SigningError, StrictJsonError
from reports.reading import render_untrusted
from reports.rendering import FILES, REPORT, SIGNATURE, STATEMENT
from reports.rendering.statement import PREDICATE_TYPE, STATEMENT_TYPE
from reports.strict_json import parse
from reports.untrusted_text import printable
from reports.verification.findings import Examined, Finding, NotChecked, Note, Said, Step

_CHUNK = 1 << 14
_RENDERED = tuple(name for name in FILES if name != REPORT)


def find_names(examined: Examined) -> Iterator[Said]:
    """Exactly the files of a package."""
    for name in FILES:
        if name not in examined.files:
            yield Finding("file-missing", name, "this file is not in the package")
    for name in examined.files:
        if name not in (*FILES, SIGNATURE):
            yield Finding.about("file-unexpected", name, "this file is no part of a package")


def find_form(examined: Examined) -> Iterator[Said]:
    """`report.json` is written as this project writes it, so that every reader finds the same in it."""
    data, written = examined.files[REPORT], examined.report.to_bytes()
    if data == written:
        return
    line = _first_difference(data, written)
    yield Finding(
        "report-form", f"{REPORT}:{line}", "not written as reports are: order, spacing, null or numbers differ from here on"
    )


def find_rendered(examined: Examined) -> Iterator[Said]:
    """The rendered files come out of `report.json` byte for byte, or, by another renderer, have the digests that were written down."""
    mine = rendering.renderer_version()
    theirs = examined.report.renderer
    if mine != theirs:
        yield NotChecked(
            f"The files were rendered by another version ({theirs}; this is {mine}), so only their digests were checked, not whether they"
            " show what report.json says. Render it yourself: accelerator-conformance render."
        )
        yield from _by_digests(examined)
        return
    try:
        made = render_untrusted(examined.files[REPORT])
    except RenderingError as error:
        yield Finding.about("render", REPORT, str(error))
        return
    for name in _RENDERED:
        if name in examined.files and examined.files[name] != made[name]:
            line = _first_difference(examined.files[name], made[name])
            yield Finding("file-altered", f"{name}:{line}", f"differs from what {REPORT} makes, from this line on")
    if all(name in examined.files for name in _RENDERED):
        yield Note(f"Rendered again by the same version ({mine}) and compared byte for byte.")


def _first_difference(found: bytes, made: bytes) -> int:
    """The line of the first byte that differs."""
    start = 0
    while found[start : start + _CHUNK] == made[start : start + _CHUNK]:
        start += _CHUNK
    pairs = zip(found[start : start + _CHUNK], made[start : start + _CHUNK], strict=False)
    place = next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(found), len(made)) - start)
    return found.count(b"\n", 0, start + place) + 1


def _by_digests(examined: Examined) -> Iterator[Said]:
    if STATEMENT not in examined.files:
        return
    try:
        statement = parse(examined.files[STATEMENT], STATEMENT)
        subjects = _subjects(statement)
    except StrictJsonError as error:
        yield Finding(error.reason, error.where, error.message)
        return
    except (KeyError, TypeError, ValueError) as error:
        yield Finding.about("statement", STATEMENT, f"this is no in-toto statement about files: {type(error).__name__}: {error}")
        return
    for name in FILES:
        if name not in examined.files or name == STATEMENT:
            continue
        if name not in subjects:
            yield Finding("digest-missing", f"{STATEMENT}/subject", f"{name} has no digest there")
        elif subjects[name] != hashlib.sha256(examined.files[name]).hexdigest():
            yield Finding("digest", name, f"its SHA-256 is not the one in {STATEMENT}")
    for name in sorted(set(subjects) - set(FILES)):
        yield Finding.about("digest-unexpected", f"{STATEMENT}/subject", f"{name} is no file of a package")


def _subjects(statement: Any) -> dict[str, str]:
    """Digests by name of file."""
    if statement["_type"] != STATEMENT_TYPE or statement["predicateType"] != PREDICATE_TYPE:
        raise ValueError("its types are others")
    digests = [(subject["name"], subject["digest"]["sha256"]) for subject in statement["subject"]]
    if not all(isinstance(part, str) for digest in digests for part in digest):
        raise TypeError("a name or digest is no text")
    if len(dict(digests)) != len(digests):
        raise ValueError("a file stands there twice")
    return dict(digests)


def find_signature(examined: Examined) -> Iterator[Said]:
    """The signature is by the key given and over this package's statement."""
    envelope = examined.files.get(SIGNATURE)
    if examined.key is None:
        signed = "There is a signature, but without --key it was not checked" if envelope else "The package is not signed"
        yield NotChecked(f"{signed}: nobody vouches for it.")
        return
    if envelope is None:
        yield Finding("signature-missing", SIGNATURE, "a key was given, and the package is not signed")
        return
    from reports import signing  # costs a reader without a key a fifth of a second

    try:
        parsed = parse(envelope, SIGNATURE)
        statement = signing.signed_statement(parsed, examined.key)
    except StrictJsonError as error:
        yield Finding(error.reason, error.where, error.message)
        return
    except SigningError as error:
        yield Finding.about("signature", SIGNATURE, str(error))
        return
    if statement != examined.files.get(STATEMENT):
        yield Finding("signature-other", SIGNATURE, f"the signature is good, but over another statement than {STATEMENT}")
        return
    yield Note(f"Signed by the key {printable(signing.key_id(examined.key))[:16]}….")


PACKAGE_STEPS = (
    Step("files", "The package has its files and no others", find_names),
    Step("form", "report.json is written in the one canonical form", find_form),
    Step("rendered", "Every other file is what report.json makes", find_rendered),
    Step("signature", "The signature is by the key given, over these files", find_signature),
)
