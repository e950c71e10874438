"""Alterations of `report.json`: outcomes, clauses, checks, numbers, status, command line, exceptions.

For: `test_alterations.py`. Not for: the other files (`alterations_of_files.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from alterations import (
    CONTRACT,
    FAILING,
    HARDWARE,
    WAIVED,
    Alteration,
    Document,
    Edit,
    at,
    both,
    check_of,
    child,
    clause_twice,
    consistent,
    counted,
    made,
    raw,
    rendered,
    without_clause,
)

from reports.rendering import REPORT

_CLAUSES: tuple[str, ...] = tuple(CONTRACT.clauses)
_HARDWARE: Document = json.loads(HARDWARE[REPORT])
_PASSED = tuple(clause["id"] for clause in _HARDWARE["clauses"] if clause["outcome"] == "pass")
_FAILED = tuple(
    clause["id"] for clause in json.loads(FAILING[REPORT])["clauses"] if clause["outcome"] not in ("pass", "unsupported")
)
_LIES = ("unsupported", "waived", "known-failure", "not-run", "fail")


def of_outcomes() -> Iterator[Alteration]:
    """Outcomes flipped."""
    for index, clause_id in enumerate(_PASSED):
        lie = _LIES[index % len(_LIES)]
        yield made(f"{clause_id} from pass to {lie}", counted, HARDWARE, at(f"clauses/{clause_id}/outcome", lie), "outcome")
    for clause_id in _PASSED[::4]:
        edit = at(f"clauses/{clause_id}/outcome", "fail")
        yield made(f"{clause_id} from pass to fail", rendered, HARDWARE, edit, "outcome", "counts", "…")
    for clause_id in _FAILED:
        excepted = ("exception-hidden-problem",) * (clause_id == "DEV-4")
        edit = at(f"clauses/{clause_id}/outcome", "pass")
        yield made(f"{clause_id} made a pass", counted, FAILING, edit, "outcome", *excepted)
        yield made(f"{clause_id} made a pass", raw, FAILING, edit, "outcome", "counts", "file-altered", "…")
        if clause_id != "COL-3":  # never had a check
            hidden = both(edit, at(f"clauses/{clause_id}/checks", []))
            yield made(f"{clause_id} made a pass without checks", counted, FAILING, hidden, "outcome", "check-unused", *excepted)


def of_clauses() -> Iterator[Alteration]:
    """Clauses removed, doubled, exchanged, changed."""
    for clause_id in _CLAUSES:
        yield made(f"{clause_id} removed", counted, HARDWARE, without_clause(clause_id), "clause-missing")
    for clause_id in _CLAUSES[::2]:
        yield made(f"{clause_id} doubled", counted, HARDWARE, clause_twice(clause_id), "clause-twice")
    for clause_id in _CLAUSES[::6]:
        yield made(
            f"{clause_id} removed", raw, HARDWARE, without_clause(clause_id), "clause-missing", "counts", "file-altered", "…"
        )
        renamed = at(f"clauses/{clause_id}/id", clause_id.partition("-")[0] + "-99")
        yield made(f"{clause_id} renamed", counted, HARDWARE, renamed, "clause-missing", "clause-unknown")
    for clause_id in _CLAUSES[:-1:5]:
        swapped = _swap("clauses", _CLAUSES.index(clause_id))
        yield made(f"{clause_id} after the next", counted, HARDWARE, swapped, "clause-order")
    for clause_id in _CLAUSES[::5]:
        clause = child(_HARDWARE["clauses"], clause_id)
        for field, value in (
            ("level", "MAY" if clause["level"] == "MUST" else "MUST"),
            ("subject", "library"),
            ("tiers", ["host", "device"]),
            ("capability", "graphs" if clause.get("capability") != "graphs" else "ipc"),
            ("text", clause["text"] + " Or not."),
        ):
            edit = at(f"clauses/{clause_id}/{field}", value)
            yield made(f"{clause_id} with another {field}", counted, HARDWARE, edit, "clause-altered")
    other_digest = at("suite/contract_digest", "0" * 64)
    yield made("another contract's digest", rendered, HARDWARE, other_digest, "contract-digest")
    yield made("another revision", counted, HARDWARE, at("suite/contract_revision", "2031.1"), "contract-revision")
    yield made("an area's title", rendered, HARDWARE, at("areas/0/title", "Whatever"), "areas")
    yield made(
        "an area more", rendered, HARDWARE, lambda document: document["areas"].append({"name": "XYZ", "title": "x"}), "areas"
    )
    yield made("all clauses removed", counted, HARDWARE, _nothing, "clause-missing")


def _swap(part: str, index: int) -> Edit:
    def edit(document: Document) -> None:
        items = document[part]
        items[index], items[index + 1] = items[index + 1], items[index]

    return edit


def _nothing(document: Document) -> None:
    document["clauses"], document["checks"] = [], []
    document["run"]["checks"] = document["run"]["reported"] = 0


def of_checks() -> Iterator[Alteration]:
    """Checks removed, doubled, moved, and emptied."""
    for clause_id in _PASSED[::4]:
        name = check_of(clause_id)
        removed = _both_counted(lambda document, name=name: document["checks"].remove(child(document["checks"], name)))
        yield made(f"the check of {clause_id} removed", counted, HARDWARE, removed, "check-missing", "outcome")
        doubled = _both_counted(lambda document, name=name: _insert_again(document["checks"], name))
        yield made(f"the check of {clause_id} doubled", counted, HARDWARE, doubled, "check-twice")
        twice = at(f"clauses/{clause_id}/checks", [name, name])
        yield made(f"the check of {clause_id} named twice", rendered, HARDWARE, twice, "check-twice")
        vacuous = both(at(f"checks/{clause_id}/examples_run", 1000), at(f"checks/{clause_id}/examples_discarded", 1000))
        yield made(f"the check of {clause_id} vacuous", rendered, HARDWARE, vacuous, "vacuous")
        yield made(
            f"the check of {clause_id} discarding more",
            rendered,
            HARDWARE,
            at(f"checks/{clause_id}/examples_discarded", 5000),
            "examples",
        )
        failed = at(f"checks/{clause_id}/outcome", "fail")
        yield made(f"the check of {clause_id} failed silently", consistent, HARDWARE, failed, "reason-missing")
        yield made(f"the check of {clause_id} failed", counted, HARDWARE, failed, "reason-missing", "outcome")
        waived = at(f"checks/{clause_id}/outcome", "waived")
        yield made(f"the check of {clause_id} waived", consistent, HARDWARE, waived, "check-outcome")
        skipped = both(at(f"checks/{clause_id}/outcome", "not-run"), at(f"checks/{clause_id}/said", "no device"))
        yield made(f"the check of {clause_id} not run after all", consistent, HARDWARE, skipped, "examples")
    for index in (0, 7, 30):
        yield made(f"check {index} after the next", rendered, HARDWARE, _swap("checks", index), "check-order")
    stray = _both_counted(lambda document: document["checks"].append({**document["checks"][0], "name": "z.py::test_stray"}))
    yield made("a check of no clause", counted, HARDWARE, stray, "check-unused")
    for clause_id in ("DEV-1", "STR-3", "RNG-2"):
        kept = at(f"checks/{clause_id}/outcome", "pass")
        yield made(f"the check of {clause_id} made a pass, its failure kept", consistent, FAILING, kept, "failure-kept")
    for clause_id in ("DEV-5", "OPS-1", "IPC-1"):
        for said in ("", " \n"):
            silent = at(f"checks/{clause_id}/said", said)
            yield made(f"the reason of {clause_id} made {said!r}", rendered, FAILING, silent, "reason-missing")


def _both_counted(edit: Edit) -> Edit:
    """The edit, with the number of checks as it is then."""

    def whole(document: Document) -> None:
        edit(document)
        document["run"]["checks"] = document["run"]["reported"] = len(document["checks"])

    return whole


def _insert_again(checks: list[Any], name: str) -> None:
    checks.insert(checks.index(child(checks, name)), child(checks, name))


def of_numbers() -> Iterator[Alteration]:
    """Counts, levels, status and what holds it back, typed in."""
    yield made("flaky counted as 0", rendered, HARDWARE, at("counts/flaky", 0), "counts")
    for files, name in ((HARDWARE, "hardware"), (FAILING, "failing")):
        document = json.loads(files[REPORT])
        for outcome, count in document["counts"].items():
            for wrong in (count + 1, count - 1, 10**6):
                yield made(f"{name}: {wrong} counted as {outcome}", rendered, files, at(f"counts/{outcome}", wrong), "counts")
        yield made(f"{name}: no counts", rendered, files, at("counts", {}), "counts")
        for level in document["verdict"]["levels"]:
            for state in ("attained", "not-attained", "unsupported", "not-supplied"):
                if state != level["state"]:
                    edit = at(f"verdict/levels/{level['name']}/state", state)
                    yield made(f"{name}: level {level['name']} {state}", rendered, files, edit, "levels")
            edit = at(f"verdict/levels/{level['name']}/passed", level["passed"] + 1)
            yield made(f"{name}: level {level['name']} passed more", rendered, files, edit, "levels")
            edit = at(f"verdict/levels/{level['name']}/missing", ["DEV-2"])
            yield made(f"{name}: level {level['name']} misses DEV-2", rendered, files, edit, "levels")
        for status in ("simulated", "preview", "hardware"):
            if status != document["verdict"]["status"]:
                yield made(f"{name}: status {status}", rendered, files, at("verdict/status", status), "status")
        yield made(f"{name}: the first line", rendered, files, at("verdict/headline", "HARDWARE: certifies all."), "headline")
        yield made(f"{name}: SHOULDs", rendered, files, at("verdict/should_not_met", ["RNG-1"]), "should")
        yield made(f"{name}: certified streams", rendered, files, at("verdict/certified", ["streams"]), "certified")
        for index, cap in enumerate(document["verdict"]["caps"]):
            edit = _without("caps", index)
            yield made(f"{name}: not held back by {cap['id']}", rendered, files, edit, "caps")
            yield made(f"{name}: {cap['id']} in other words", rendered, files, at(f"verdict/caps/{index}/text", "hardly"), "caps")


def _without(part: str, index: int) -> Edit:
    return lambda document: document["verdict"][part].pop(index)


def of_status() -> Iterator[Alteration]:
    """A simulated, small, partial or changed run made one on hardware."""
    real, name = at("backend/simulated", False), at("backend/name", "musa")
    argv = at("run/argv/0", "--backend=musa")
    yield made("simulated made real", counted, FAILING, real, "simulated")
    yield made("simulated made real, name too", counted, FAILING, both(real, name), "simulated", "argv")
    yield made("simulated made real, command line too", counted, FAILING, both(real, argv), "simulated", "argv")
    adapter = at("backend/adapter", "fakes.machine.Machine")
    yield made("simulated made real but for its adapter", counted, FAILING, both(real, name, argv, adapter), "simulated")
    code = both(
        at("backend/accelerator", "fakes.machine:make"),
        lambda document: document["run"]["argv"].append("--accelerator=fakes.machine:make"),
    )
    yield made("simulated made real but for its accelerator", counted, FAILING, both(real, name, argv, code), "simulated")
    yield made("simulated made hardware", raw, FAILING, at("verdict/status", "hardware"), "status", "file-altered", "…")
    more = at("run/examples", 1000)
    yield made("more examples", counted, FAILING, more, "argv")
    yield made("more effort", counted, FAILING, both(more, at("run/effort", "certify")), "argv")
    yield made("an effort of its own", rendered, HARDWARE, at("run/effort", "heroic"), "effort", "argv")
    yield made("a fault hidden", rendered, HARDWARE, lambda document: document["run"]["argv"].append("--fault=dev-x"), "argv")
    yield made("another seed", rendered, HARDWARE, lambda document: document["run"]["argv"].append("--hypothesis-seed=8"), "argv")
    yield made("a changed file hidden", rendered, HARDWARE, at("suite/changed", ["conformance/test_devices.py"]), "tree")
    yield made("fewer reported", rendered, HARDWARE, at("run/reported", 3), "run-checks")
    yield made("more reported", rendered, HARDWARE, at("run/reported", 3000), "run-checks")
    yield made("more checks", rendered, HARDWARE, at("run/checks", 3000), "run-checks")
    left_out = both(at("run/deselected", [check_of("DEV-1")]), at("run/reported", len(_HARDWARE["checks"]) - 1))
    yield made("a check left out and passed", counted, HARDWARE, left_out, "run-deselected")
    yield made("less supplied", counted, HARDWARE, at("backend/supplied", ["backend"]), "supplied")
    yield made("more supplied", counted, HARDWARE, at("backend/supplied", ["backend", "transport", "aligner"]), "supplied")
    yield made(
        "another configuration", rendered, HARDWARE, at("backend/configuration/communication_backend", "x"), "configuration-digest"
    )
    yield made("no time", raw, HARDWARE, at("run/started", "2026-13-45T99:00:00Z"), "time", "render", "…")
    for words in _DISABLING:
        yield made(f"with {words}", rendered, HARDWARE, at("run/argv", [*_LINE, *words.split()]), "argv-disabling", "…")
    for words in _OTHERWISE:
        yield made(f"with {words}", rendered, HARDWARE, at("run/argv", [*_LINE, *words.split()]), "argv")
    for word in _LINE[1:]:
        edit = at("run/argv", [other for other in _LINE if other != word])
        yield made(f"without {word}", rendered, HARDWARE, edit, "argv")


def of_facts() -> Iterator[Alteration]:
    """Facts about backend, devices and capabilities that contradict what ran."""
    devices = _HARDWARE["host"]["devices"]
    for name, found in {
        "the second device only": devices[1:],
        "one device twice": [devices[0], {**devices[1], "uuid": devices[0]["uuid"]}],
        "two devices in one slot": [devices[0], {**devices[1], "pci": devices[0]["pci"]}],
        "two devices of one number": [devices[0], {**devices[1], "index": 0}],
    }.items():
        reasons = ("devices", "device-missing") if len(found) == 1 else ("devices",)
        yield made(name, rendered, HARDWARE, at("host/devices", found), *reasons)
    yield made("no devices", rendered, HARDWARE, at("host/devices", []), "caps", "status", "certified", "headline")
    yield made("one device, and checks with two", rendered, HARDWARE, at("host/devices", devices[:1]), "device-missing")
    yield made("a simulated device", rendered, HARDWARE, at("host/devices/0/name", "MTT S5000 (simulated)"), "simulated")
    yield made("a simulated driver", rendered, HARDWARE, at("host/driver", "simulated"), "simulated")
    none = at("backend/no_device_reason", "torch.musa.is_available() is False")
    yield made("no device, and checks on it", counted, HARDWARE, none, "device-missing")
    for index, fact in enumerate(_HARDWARE["capabilities"]):
        twice = lambda document, fact=fact: document["capabilities"].append({**fact, "supported": not fact["supported"]})  # noqa: E731
        needed = fact["supported"] and any(clause.get("capability") == fact["name"] for clause in _HARDWARE["clauses"])
        reasons = ("capability-twice", "capability-denied") if needed else ("capability-twice",)
        yield made(f"{fact['name']} answered twice", counted, HARDWARE, twice, *reasons)
        if needed:
            denied = at(f"capabilities/{index}/supported", False)
            yield made(f"{fact['name']} denied, and used", counted, HARDWARE, denied, "capability-denied")
    yield made("no commit", rendered, HARDWARE, at("suite/commit", "the one of yesterday"), "commit")
    yield made("no digest of the reference", rendered, HARDWARE, lambda d: d["suite"]["digests"].pop("harness"), "suite-digests")
    yield made("a digest more", rendered, HARDWARE, lambda d: d["suite"]["digests"].update(mine="0" * 64), "suite-digests")


_LINE: tuple[str, ...] = tuple(_HARDWARE["run"]["argv"])
_DISABLING = (
    *(
        "-k DEV",
        "-kDEV",
        "-k=DEV",
        "-m host",
        "-vk DEV",
        "-qx",
        "-x",
        "--exitfirst",
        "--maxfail=1",
        "--deselect checks.py::test_dev-1",
    ),
    *("--deselect=x", "--ignore=conformance/test_devices.py", "--ignore-glob=*", "--lf", "--last-failed", "--sw", "--stepwise"),
    *(
        "--collect-only",
        "--co",
        "-c other.ini",
        "-o addopts=-k",
        "--override-ini=x=y",
        "--noconftest",
        "--runxfail",
        "--setup-only",
    ),
    *(
        "--setup-plan",
        "--pdb",
        "-p my_plugin",
        "-pmy_plugin",
        "-p no:timeout",
        "-p no:conformance.plugin",
        "--assert=plain",
        "-W ignore",
    ),
    *("--rootdir=/tmp", "conformance/test_devices.py", "conformance/checks.py::test_dev-1", "-- -k", "--unknown-option"),
    *("--hypothesis-profile=mine", "--import-mode=importlib", "conformance -k DEV", "--certify=out -k DEV -q"),
)
_OTHERWISE = (
    *(
        "--backend=cpu",
        "--backend cpu",
        "--effort=quick",
        "--effort quick",
        "--examples=10",
        "--tier=host",
        "--tier host",
        "--fault=dev-x",
    ),
    *("--hypothesis-seed=1", "--hypothesis-seed=x", "--vendor=Other", "--product Other", "--accelerator=a:b", "--normalizer=a:b"),
    *("--aligner=a:b", "--schedule=eager", "--schedule lazy"),
)


def of_exceptions() -> Iterator[Alteration]:
    """Waivers slipped in, and known failures that are none."""
    entry = {"clause": "DEV-2", "kind": "waiver", "device": "*", "reason": "r", "url": "u", "expires": "2030-01-01"}
    named = at("run/argv", [*_LINE, "--known-failures=w.toml"])
    for clause_id in _PASSED[::6]:
        slipped = at("exceptions", {"digest": "0" * 64, "entries": [{**entry, "clause": clause_id}], "problems": []})
        hidden = ("exceptions", "exception-hidden-problem")
        yield made(f"a waiver for {clause_id}", consistent, HARDWARE, slipped, *hidden)
        yield made(f"a waiver for {clause_id}, named", consistent, HARDWARE, both(slipped, named), "exception-hidden-problem")
    second = lambda document: document["exceptions"]["entries"].append({**entry, "clause": "DEV-1"})  # noqa: E731
    yield made("a waiver for DEV-1 that failed", rendered, FAILING, second, "outcome", "exception-hidden-problem")
    yield made("a waiver for DEV-1 that failed", raw, FAILING, second, "outcome", "file-altered", "…")
    yield made("excepted until no day", rendered, WAIVED, at("exceptions/entries/0/expires", "2026-99-99"), "exception-date")
    yield made("a problem invented", rendered, WAIVED, at("exceptions/problems", ["x"]), "exception-no-problem")
    for field, value in (
        ("clause", "DEV-77"),
        ("clause", "STR-1"),
        ("device", "Other*"),
        ("device", ""),
        ("expires", "2026-11-29"),
    ):
        edit = at(f"exceptions/entries/0/{field}", value)
        yield made(f"excepted with {field} {value!r}", consistent, WAIVED, edit, "exception-hidden-problem")
    again = lambda document: document["exceptions"]["entries"].append(document["exceptions"]["entries"][0])  # noqa: E731
    yield made("excepted twice", consistent, WAIVED, again, "exception-hidden-problem")
    yield made("excepted otherwise", rendered, WAIVED, at("exceptions/entries/0/kind", "waiver"), "outcome")
    yield made("the exceptions hidden", consistent, WAIVED, lambda document: document.pop("exceptions"), "exceptions")
    yield made("the exceptions hidden", rendered, WAIVED, lambda document: document.pop("exceptions"), "exceptions", "outcome")
