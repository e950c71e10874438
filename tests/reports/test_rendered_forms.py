"""Every file of a package, as it is written: kept as snapshots, and the same on another day, in another time zone and locale.

After a wanted change of a form: `python -m pytest tests/reports/test_rendered_forms.py --snapshot-update`, and look at the difference.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from report_factory import make_failing_report, make_package, make_report
from rich.console import Console
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from reports.levels import finished
from reports.matrix import Matrix, make_matrix, to_html, to_markdown, to_terminal
from reports.model import Report
from reports.rendering import FILES, render_all, renderer_version

_ELSEWHERE = """
import datetime, locale, sys, time
time.time = lambda: 4_000_000_000.0
class Later(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2096, 10, 2, tzinfo=tz)
datetime.datetime = Later
for name in ("de_DE.UTF-8", "tr_TR.UTF-8", "C"):
    try:
        locale.setlocale(locale.LC_ALL, name)
        break
    except locale.Error:
        pass
from reports.rendering import render_all
import hashlib
import io
for name, data in render_all(sys.stdin.buffer.read()).items():
    print(name, hashlib.sha256(data).hexdigest())
"""


_KEPT = ("DEV-1", "DEV-2", "DEV-4", "DEV-5", "STR-3", "MEM-4", "OPS-1", "RNG-2", "IPC-1", "COL-3", "RXA-2")


def snapshot_report() -> Report:
    """A clause of every outcome."""
    return _kept(make_failing_report())


def _kept(report: Report) -> Report:
    """A part of a report, with nothing that changes when the contract or the renderer's sources do."""
    clauses = tuple(
        clause.model_copy(update={"text": f"What {clause.id} asks for, with `code` & <signs>.", "capability": None})
        for clause in report.clauses
        if clause.id in _KEPT
    )
    names = {name for clause in clauses for name in clause.checks}
    return finished(
        report.model_copy(
            update={
                "renderer": "1+snapshot",
                "clauses": clauses,
                "checks": tuple(check for check in report.checks if check.name in names),
                "areas": tuple(area for area in report.areas if any(one.startswith(f"{area.name}-") for one in _KEPT)),
                "capabilities": report.capabilities[:2],
                "suite": report.suite.model_copy(update={"contract_revision": "2026.11", "contract_digest": "0" * 64}),
            }
        )
    )


class AsWritten(SingleFileSnapshotExtension):
    """A snapshot is the file itself, so that it can be opened."""

    _write_mode = WriteMode.TEXT


@pytest.mark.parametrize("name", FILES)
def test_as_it_was(name: str, snapshot: SnapshotAssertion) -> None:
    stem, _, ending = name.rpartition(".")
    text = render_all(snapshot_report().to_bytes())[name].decode()
    form = type("Form", (AsWritten,), {"file_extension": ending})
    assert snapshot(name=stem, extension_class=form) == text


def test_the_same_on_another_day_in_another_zone_and_locale() -> None:
    data = make_failing_report().to_bytes()
    environment = {**os.environ, "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "LANG": "C", "PYTHONHASHSEED": "12345"}
    root = Path(__file__).parents[2]
    # In such a locale PyTorch cannot be imported from a folder whose name is not ASCII.
    utf8 = int(not f"{root}{torch.__file__}".isascii())
    answer = subprocess.run(
        [sys.executable, "-X", f"utf8={utf8}", "-c", _ELSEWHERE],
        input=data,
        capture_output=True,
        env={**environment, "PYTHONPATH": str(root)},
        cwd=root,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr.decode()
    there = dict(line.split() for line in answer.stdout.decode().splitlines())
    assert there == {name: hashlib.sha256(made).hexdigest() for name, made in render_all(data).items()}


def test_reading_needs_no_torch() -> None:
    code = "import sys; from reports.rendering import render_all; render_all(sys.stdin.buffer.read()); sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    answer = subprocess.run(
        [sys.executable, "-c", code], input=make_report().to_bytes(), capture_output=True, cwd=root, timeout=120, check=False
    )
    assert answer.returncode == 0, answer.stderr.decode()


def test_the_renderers_name_follows_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number, _, digest = renderer_version().partition("+")
    assert number == "1"
    assert len(digest) == 12
    read = Path.read_bytes

    def changed(path: Path) -> bytes:
        return read(path) + (b" " if path.name == "report.css" else b"")

    renderer_version.cache_clear()
    monkeypatch.setattr(Path, "read_bytes", changed)
    try:
        assert renderer_version() != f"{number}+{digest}"
    finally:
        renderer_version.cache_clear()


def test_forms_count_as_the_report_does() -> None:
    report = make_failing_report()
    files = make_package(report)
    suites = ElementTree.fromstring(files["junit.xml"])
    failing = report.counts["fail"] + report.counts["flaky"]
    assert int(suites.get("tests", "")) == len(report.clauses)
    assert int(suites.get("failures", "")) == failing == len(list(suites.iter("failure")))
    assert int(suites.get("errors", "")) == report.counts["harness-error"]
    summary = json.loads(files["ctrf.json"])["results"]["summary"]
    assert summary["tests"] == len(report.clauses)
    assert summary["failed"] == failing + report.counts["harness-error"]
    assert summary["passed"] == report.counts["pass"]
    statement = json.loads(files["statement.json"])
    assert statement["predicate"]["result"] == "FAILED"
    assert statement["subject"] == [
        {"name": name, "digest": {"sha256": hashlib.sha256(files[name]).hexdigest()}} for name in FILES if name != "statement.json"
    ]
    assert sum(len(statement["predicate"][f"{kind}Tests"]) for kind in ("passed", "warned", "failed")) == len(report.clauses)


def test_every_form_says_the_first_line() -> None:
    report = make_failing_report()
    for name, data in make_package(report).items():
        if name != "statement.json":  # which has no place for it
            assert report.verdict.headline in data.decode(), name


def test_text_that_no_form_can_hold_is_shown_as_its_code() -> None:
    report = make_failing_report()
    odd = "\x00\x1b[31m\ufffe]]>&\r\n\u2028"
    checks = tuple(check.model_copy(update={"said": odd}) if check.said else check for check in report.checks)
    files = render_all(report.model_copy(update={"checks": checks}).to_bytes())
    for name in ("junit.xml", "badge.svg"):
        ElementTree.fromstring(files[name])
    assert b"\\x00\\x1b[31m" in files["junit.xml"]


def _side_by_side() -> Matrix:
    """A certified report, one that fails, and one that does not hold."""
    doubtful = _kept(make_report(outcomes={"DEV-5": "not-run"}, examples=100))
    return make_matrix([(_kept(make_report()), True), (snapshot_report(), True), (doubtful, False)])


@pytest.mark.parametrize(("ending", "make"), [("html", to_html), ("md", to_markdown)])
def test_a_matrix_as_it_was(ending: str, make: Callable[[Matrix], str], snapshot: SnapshotAssertion) -> None:
    form = type("Form", (AsWritten,), {"file_extension": ending})
    assert snapshot(name="matrix", extension_class=form) == make(_side_by_side())


@pytest.mark.parametrize("width", [160, 80])
def test_a_matrix_in_a_terminal_as_it_was(width: int, snapshot: SnapshotAssertion) -> None:
    console = Console(width=width, markup=False, highlight=False, emoji=False, file=io.StringIO(), legacy_windows=False)
    console.print(to_terminal(_side_by_side()))
    form = type("Form", (AsWritten,), {"file_extension": "txt"})
    assert snapshot(name="matrix", extension_class=form) == console.file.getvalue()
