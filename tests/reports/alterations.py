"""What alterations of packages are made of: honest packages, edits, and how thorough a forger is.

For: `test_alterations.py` and the lists of alterations. An alteration makes a package's files from those of an honest one. A forger edits
one file and leaves the rest (`raw`), makes the other files again (`rendered`), computes counts, levels and status again too (`counted`), so
that only the one thing that does not fit gives the edit away, or everything that can be computed (`consistent`). Not for: attacks on
archives (`test_safe_archive.py`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from report_factory import make_failing_report, make_known_failure, make_report, sha256

from conformance.clauses import AREAS, CLAUSES
from reports.levels import count_outcomes, finished, judge
from reports.model import Report
from reports.package import package_files
from reports.rendering import REPORT, render_all
from reports.verification.contract import this_contract

Files = dict[str, bytes]
Document = dict[str, Any]
Edit = Callable[[Document], object]

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))

_AREAS = ("DEV", "STR", "OPS", "RNG", "IPC", "COL")
CONTRACT = dataclasses.replace(
    this_contract(),
    clauses={clause.id: clause for clause in CLAUSES.values() if clause.area in _AREAS},
    areas={name: AREAS[name].title for name in AREAS if name in _AREAS},
    digest=sha256("part of the contract"),
)
"""A part of the contract, since a third of the clauses shows the same in a third of the time."""


def _part(report: Report) -> Report:
    """The same report of a run under that part of the contract."""
    clauses = tuple(clause for clause in report.clauses if clause.id in CONTRACT.clauses)
    named = {name for clause in clauses for name in clause.checks}
    checks = tuple(check for check in report.checks if check.name in named)
    return finished(
        report.model_copy(
            update={
                "clauses": clauses,
                "checks": checks,
                "areas": tuple(area for area in report.areas if area.name in _AREAS),
                "suite": report.suite.model_copy(update={"contract_digest": CONTRACT.digest}),
                "run": report.run.model_copy(update={"checks": len(checks), "reported": len(checks)}),
            }
        )
    )


HARDWARE = package_files(_part(make_report()), KEY)
FAILING = package_files(_part(make_failing_report()), KEY)
WAIVED = package_files(_part(make_report(outcomes={"DEV-4": "fail"}, known_failures=(make_known_failure(),))), KEY)
OTHER_RENDERER = package_files(_part(make_report()).model_copy(update={"renderer": "0+0123456789ab"}), KEY)
HONEST = {"hardware": HARDWARE, "failing": FAILING, "waived": WAIVED, "by another renderer": OTHER_RENDERER}


@dataclass(frozen=True)
class Alteration:
    """`reasons` are those for which verify must reject the files: all there are, unless `others` says that more may follow from the same
    edit. `unreadable` is for exit code 2; `keyed` for giving verify the key."""

    name: str
    make: Callable[[], Files]
    reasons: frozenset[str]
    others: bool = False
    unreadable: bool = False
    keyed: bool = False


# How thorough a forger is


def written(document: Document) -> bytes:
    """A report in the canonical form."""
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def raw(files: Files, edit: Edit) -> Files:
    """Edits report.json alone."""
    document = json.loads(files[REPORT])
    edit(document)
    return {**files, REPORT: written(document)}


def rendered(files: Files, edit: Edit) -> Files:
    """Makes the other files again; the signature cannot be made again."""
    data = raw(files, edit)[REPORT]
    return render_all(data)


def counted(files: Files, edit: Edit) -> Files:
    """Computes counts and verdict from the outcomes as edited, and makes the other files again."""
    report = Report.from_bytes(raw(files, edit)[REPORT])
    report = report.model_copy(update={"counts": count_outcomes(report.clauses)})
    return render_all(report.model_copy(update={"verdict": judge(report)}).to_bytes())


def consistent(files: Files, edit: Edit) -> Files:
    """Computes all that is computed again: what no one can tell from the report itself."""
    return render_all(finished(Report.from_bytes(raw(files, edit)[REPORT])).to_bytes())


# Edits


def at(path: str, value: Any) -> Edit:
    """Sets what is at a path like `run/seed` or `clauses/DEV-4/outcome`."""

    def edit(document: Document) -> None:
        *parents, last = path.split("/")
        place: Any = document
        for part in parents:
            place = child(place, part)
        place[int(last) if isinstance(place, list) else last] = value

    return edit


def child(place: Any, part: str) -> Any:
    """A field, an item by number, or an item by its id or name; a check also by its clause."""
    if isinstance(place, dict):
        return place[part]
    if part.isdigit():
        return place[int(part)]
    return next(item for item in place if part in (item.get("id"), item.get("name")) or item.get("name") == check_of(part))


def both(*edits: Edit) -> Edit:
    """One edit after the other."""

    def edit(document: Document) -> None:
        for each in edits:
            each(document)

    return edit


def check_of(clause_id: str) -> str:
    """The factory's name of the check of a clause."""
    return f"conformance/checks.py::test_{clause_id.lower()}"


def without_clause(clause_id: str) -> Edit:
    """Takes a clause and its check away, and counts the checks again."""

    def edit(document: Document) -> None:
        document["clauses"] = [clause for clause in document["clauses"] if clause["id"] != clause_id]
        document["checks"] = [check for check in document["checks"] if check["name"] != check_of(clause_id)]
        document["run"]["checks"] = document["run"]["reported"] = len(document["checks"])

    return edit


def clause_twice(clause_id: str) -> Edit:
    """Writes a clause down twice."""
    return lambda document: document["clauses"].insert(0, child(document["clauses"], clause_id))


def made(name: str, how: Callable[..., Files], files: Files, edit: Edit, *reasons: str) -> Alteration:
    """An alteration by an edit of the document; "…" among the reasons stands for others."""
    return Alteration(f"{name} ({how.__name__})", lambda: how(files, edit), frozenset(reasons) - {"…"}, others="…" in reasons)
