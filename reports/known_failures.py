"""`--known-failures=FILE`: failures that are known, and waivers, in TOML.

For: reading the file, and finding what is wrong with its entries after a run. They are shown and counted, never hidden. Not for: what an
entry does to a clause's outcome (`levels.py`).

    [[known-failure]]
    clause = "MEM-4"
    device = "Example X*"          # a shell pattern over device names; "*" for any
    reason = "counters lag by one block; fixed in driver 4.4"
    url = "https://…"
    expires = 2027-03-31

    [[waiver]]                     # the same fields
"""

from __future__ import annotations

import datetime
import fnmatch
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from conformance.clauses import UnknownClauseError, get_clause
from reports.errors import KnownFailuresError
from reports.model import ExceptionEntry, Exceptions, Report

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KINDS: tuple[Literal["known-failure", "waiver"], ...] = ("known-failure", "waiver")
_TEXTS = ("clause", "device", "reason", "url")


def read_known_failures(path: Path) -> Exceptions:
    """The entries of a file, in its order.

    Raises:
        KnownFailuresError: it cannot be read, is no TOML, or an entry lacks a field, has one too many, or names no clause.
    """
    try:
        data = path.read_bytes()
        document = tomllib.loads(data.decode())
    except OSError as error:
        raise KnownFailuresError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise KnownFailuresError(f"{path}: this is no TOML: {error}") from error
    unknown = sorted(set(document) - set(_KINDS))
    if unknown:
        raise KnownFailuresError(f"{path}: {unknown[0]!r} is not known; entries are headed [[known-failure]] or [[waiver]]")
    entries = []
    for kind in _KINDS:
        rows = document.get(kind, [])
        if not isinstance(rows, list):
            raise KnownFailuresError(f"{path}: write [[{kind}]], with two brackets, above each entry")
        entries += [_entry(f"{path}: {kind} {number}", kind, row) for number, row in enumerate(rows, start=1)]
    return Exceptions(digest=hashlib.sha256(data).hexdigest(), entries=tuple(entries), problems=())


def _entry(where: str, kind: Literal["known-failure", "waiver"], row: Any) -> ExceptionEntry:
    if not isinstance(row, dict):
        raise KnownFailuresError(f"{where}: expected a table")
    fields = {*_TEXTS, "expires"}
    if set(row) != fields:
        wrong = sorted(fields ^ set(row))[0]
        raise KnownFailuresError(
            f"{where}: {wrong!r} is {'missing' if wrong in fields else 'not known'}; fields are {', '.join(sorted(fields))}"
        )
    for name in _TEXTS:
        if not isinstance(row[name], str) or not row[name].strip():
            raise KnownFailuresError(f"{where}: {name} must be text that is not empty")
    if type(row["expires"]) is not datetime.date:
        raise KnownFailuresError(f"{where}: expires must be a date without quotes, such as 2027-03-31")
    try:
        get_clause(row["clause"])
    except UnknownClauseError as error:
        raise KnownFailuresError(f"{where}: {error}") from error
    return ExceptionEntry(kind=kind, expires=row["expires"].isoformat(), **{name: row[name] for name in _TEXTS})


def problems(report: Report) -> tuple[str, ...]:
    """What is wrong with the entries in the light of the run; each makes the run fail. In a run that was cut short, a clause that was not
    reached is no match that failed.

    `report` is finished, so that a clause's outcome shows whether its entry applied.
    """
    if report.exceptions is None:
        return ()
    return tuple(_problems(report, report.exceptions.entries))


def _problems(report: Report, entries: tuple[ExceptionEntry, ...]) -> Iterator[str]:
    outcomes = {clause.id: clause.outcome for clause in report.clauses}
    names = [device.name or "" for device in report.host.devices]
    entries_of = Counter(entry.clause for entry in entries)
    for clause, count in entries_of.items():
        if count > 1:
            yield f"{clause}: {count} entries match it; which one holds is ambiguous"
    for entry in entries:
        about = f"{entry.clause} ({entry.kind})"
        matched = [name for name in names if fnmatch.fnmatchcase(name, entry.device)]
        if not matched and entry.device != "*":
            yield f"{about}: no device of this run is named like {entry.device!r}; they are {_listed(names)}"
        elif len(matched) < len(names):
            yield f"{about}: {entry.device!r} matches some devices of this run and not others ({_listed(names)}), which is ambiguous"
        if entry.expires < report.run.started[:10]:
            yield f"{about}: it expired on {entry.expires}"
        outcome = outcomes.get(entry.clause)
        if outcome == "pass":
            yield f"{about}: the clause passed; remove the entry"
        elif outcome not in ("known-failure", "waived") and (report.run.complete or outcome != "not-run"):
            yield f"{about}: the clause did not fail, it is {outcome}; the entry matches nothing"


def _listed(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(map(repr, names))) or "none"
