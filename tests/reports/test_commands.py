"""The commands that read reports: exit codes, forms, and that nothing hostile reaches a terminal or a page."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from report_factory import make_failing_report, make_report

from conformance.clauses import CLAUSES
from reports.command_line import main
from reports.levels import finished
from reports.model import Report
from reports.package import package_files, write_package
from reports.rendering import FILES, REPORT
from reports.schema import schema_text

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
_ROOT = Path(__file__).parents[2]


def run(*arguments: object) -> Result:
    """The command in this process; standard error is kept apart."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def public(folder: Path) -> Path:
    """The public half of the key, in a file."""
    path = folder / "key.pub"
    path.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


def written(path: Path, report: Report, key: Ed25519PrivateKey | None = None) -> Path:
    """The report's package at `path`."""
    write_package(path, package_files(report, key))
    return path


def test_verify_answers_with_its_exit_code(tmp_path: Path) -> None:
    good = run("verify", written(tmp_path / "good", make_report()))
    assert (good.exit_code, "holds" in good.output, "nobody vouches" in good.output) == (0, True, True)
    assert "HARDWARE: musa" in good.output.splitlines()[0]
    archived = written(tmp_path / "good.tar.gz", make_report())
    assert run("verify", archived).exit_code == 0
    page = tmp_path / "good" / "report.html"
    page.write_bytes(page.read_bytes().replace(b"pass", b"Pass", 1))
    bad = run("verify", tmp_path / "good")
    assert (bad.exit_code, "[file-altered]" in bad.output, "DOES NOT HOLD" in bad.output) == (1, True, True)
    (tmp_path / "good" / "link").symlink_to("/etc/passwd")
    unreadable = run("verify", tmp_path / "good")
    assert (unreadable.exit_code, "[archive-link]" in unreadable.output, "CANNOT BE READ" in unreadable.output) == (2, True, True)


def test_verify_checks_a_signature(tmp_path: Path) -> None:
    signed, plain = written(tmp_path / "signed", make_report(), KEY), written(tmp_path / "plain", make_report())
    public, other = tmp_path / "key.pub", tmp_path / "other.pub"
    for path, key in ((public, KEY), (other, Ed25519PrivateKey.generate())):
        path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    assert "It does not show that the run happened" in " ".join(run("verify", signed, "--key", public).output.split())
    assert [run("verify", path, "--key", key).exit_code for path in (signed, plain) for key in (public, other)] == [0, 1, 1, 1]
    assert run("verify", signed, "--key", tmp_path / "none").exit_code == 2
    assert run("verify", signed, "--key", signed / REPORT).exit_code == 2


def test_verify_answers_machines(tmp_path: Path) -> None:
    answer = json.loads(run("verify", "--json", written(tmp_path / "out", make_report())).output)
    assert (answer["verdict"], answer["format"]) == ("holds", "accelerator-conformance-verification/1")
    assert {step["state"] for step in answer["steps"]} == {"holds", "not-checked"}
    (tmp_path / "out" / "x").touch()
    answer = json.loads(run("verify", "--json", tmp_path / "out").output)
    assert answer["verdict"] == "does-not-hold"
    assert [finding for step in answer["steps"] for finding in step["findings"]] == [
        {"reason": "file-unexpected", "where": "x", "message": "this file is no part of a package"}
    ]
    assert json.loads(run("verify", "--json", tmp_path / "nowhere").output)["verdict"] == "unreadable"


def test_reading_needs_neither_pytorch_nor_the_suites_libraries(tmp_path: Path) -> None:
    """Anyone's laptop: what reading a report imports is what a plain installation without PyTorch has."""
    path = written(tmp_path / "out", make_report())
    program = f"""
import sys
for name in ("torch", "hypothesis", "pytest", "numpy"):
    sys.modules[name] = None
from reports.command_line import main
for command in (["verify"], ["show"], ["matrix"], ["compare", {str(path)!r}]):
    try:
        main([*command, {str(path)!r}])
    except SystemExit as end:
        assert not end.code, (command, end.code)
"""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


def test_nothing_is_written_or_executed(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    path = written(tmp_path / "out", make_failing_report())
    kept = {each: (each.stat().st_mtime_ns, each.read_bytes()) for each in path.iterdir()}
    for command in ("verify", "show", "matrix"):
        run(command, path)
    assert {each: (each.stat().st_mtime_ns, each.read_bytes()) for each in path.iterdir()} == kept
    assert sorted(each for each in tmp_path.rglob("*") if path not in (each, *each.parents)) == before


def test_show(tmp_path: Path) -> None:
    path = written(tmp_path / "out", make_failing_report())
    shown = run("show", path)
    assert shown.exit_code == 0
    for text in (
        "SIMULATED",
        "Example X100",
        "DEV-1 fail",
        "again: python -m conformance",
        "known-failure DEV-4 on Example X*",
        "not-attained",
    ):
        assert text in shown.output
    alone = run("show", path / REPORT)
    assert alone.output == shown.output
    one = run("show", path, "--clause", "ipc")
    assert "calling it raised UnsupportedCapabilityError" in one.output
    assert "DEV-1" not in one.output
    assert run("show", path, "--clause", "XYZ").exit_code == 2
    assert run("show", tmp_path / "nowhere").exit_code == 2


def test_render(tmp_path: Path) -> None:
    path = written(tmp_path / "out", make_report(), KEY)
    assert run("render", path / REPORT, tmp_path / "again").exit_code == 0
    assert sorted(each.name for each in (tmp_path / "again").iterdir()) == sorted(FILES)
    assert all((tmp_path / "again" / name).read_bytes() == (path / name).read_bytes() for name in FILES)
    assert run("render", path, tmp_path / "again.tar.gz").exit_code == 0
    assert run("verify", tmp_path / "again.tar.gz").exit_code == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    for there in (tmp_path / "mine", path, tmp_path / "again.tar.gz"):
        refused = run("render", path, there)
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert run("verify", path, "--key", public(tmp_path)).exit_code == 0


def test_exit_code_1_is_an_answer_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "out", make_report())
    for raised, code in ((ZeroDivisionError("\x1b[2J"), 2), (MemoryError(), 2), (KeyboardInterrupt(), 130)):

        def broken(*arguments: object, error: BaseException = raised) -> None:
            raise error

        monkeypatch.setattr(importlib.import_module("reports.commands.verify"), "verify_path", broken)
        result = run("verify", path)
        assert result.exit_code == code
        assert "\x1b" not in result.output
    assert run("clauses", "XYZ-1").exit_code == 2
    for option in (("--seed", 4), ("--examples", 5), ("--clause", "DEV"), ("--allow-code", "a:b")):
        result = run("verify", path, *option)
        assert result.exit_code == 2
        assert f"{option[0]}: this is for --replay" in result.stderr


_NO_UNICODE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}


@pytest.mark.parametrize("command", ["verify", "show", "matrix"])
def test_a_terminal_that_knows_no_unicode_gets_an_answer(command: str, tmp_path: Path) -> None:
    path = written(tmp_path / "out", make_report())
    answer = _in_a_process(command, path, environment=_NO_UNICODE)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.isascii()
    assert command != "verify" or "ok  report.json keeps the published schema" in answer.stdout


def test_documents_are_in_utf8_whatever_the_terminal(tmp_path: Path) -> None:
    report = make_report()
    declared = report.declared.model_copy(update={"product": "Gerät 7"})
    path = written(tmp_path / "out", report.model_copy(update={"declared": declared}))
    answer = _in_a_process("matrix", path, "--markdown", "-", environment=_NO_UNICODE)
    assert "Gerät 7" in answer.stdout
    assert answer.stdout == run("matrix", path, "--markdown", "-").output


def test_a_layout_that_cannot_be_drawn_here_says_nothing_about_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "out", make_failing_report())
    monkeypatch.setitem(sys.modules, "harness.routed_experts", None)
    result = run("verify", path)
    assert result.exit_code == 2
    assert "PyTorch, which drawing a layout takes, cannot be imported" in result.output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_answer_that_cannot_be_written_is_none(form: list[str], tmp_path: Path) -> None:
    path = written(tmp_path / "out", make_report())
    with Path("/dev/full").open("w") as full:
        answer = _in_a_process("verify", path, *form, stdout=full)
    assert answer.returncode == 2
    assert answer.stderr == "Error: cannot write the answer: No space left on device\n"


def _in_a_process(
    *arguments: object, environment: dict[str, str] | None = None, stdout: Any = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    code = "from reports.command_line import main; main(prog_name='accelerator-conformance')"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        cwd=_ROOT,
        env={**os.environ, **(environment or {})},
        timeout=120,
        check=False,
    )


def test_schema_and_clauses() -> None:
    assert run("schema").output == schema_text()
    assert run("clauses", "dev-4").output.count("DEV-") == 1
    assert run("clauses", "dev").output.count("│ DEV-") == sum(clause.area == "DEV" for clause in CLAUSES.values())
    assert "SHOULD" in run("clauses", "DEV", "--level", "should").output
    assert "MUST" not in run("clauses", "DEV", "--level", "should").output
    assert "the nearest id is DEV-4" in run("clauses", "DEF-4").output


def test_matrix(tmp_path: Path) -> None:
    good, bad = written(tmp_path / "good", make_report()), written(tmp_path / "bad.tar.gz", make_failing_report())
    (good / "x").touch()
    result = run("matrix", good, bad, "--html", tmp_path / "m.html", "--markdown", tmp_path / "m.md")
    assert (result.exit_code, result.output) == (0, "")
    page, text, shown = (tmp_path / "m.html").read_text(), (tmp_path / "m.md").read_text(), run("matrix", good, bad).output
    assert run("matrix", good, bad, "--markdown", "-").output == text
    for form in (page, text, shown):
        for cell in ("12/12", "9/12 ✗2 ○1", "unsupported", "simulated", "core, streams", "NO"):
            assert cell in form
    assert "src=" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert run("matrix").exit_code == 2
    assert run("matrix", good, "--html", tmp_path / "no" / "m.html").exit_code == 2


_HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r\n\x00[bold red]x[/] <script>alert(1)</script> | @team #1 https://evil.example www.evil.example"
    " `x`"
)


def _hostile(report: Report) -> Report:
    """The report with a hostile text before whatever text may be anything."""

    def spoiled(value: Any, path: tuple[str, ...] = ()) -> Any:
        if isinstance(value, dict):
            return {key: spoiled(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [spoiled(inner, path) for inner in value]
        is_free = path[-2:] == ("clauses", "checks") or (path[-1] in _FREE and path[0] not in ("clauses", "verdict"))
        return _HOSTILE + value if isinstance(value, str) and is_free else value

    return finished(Report.from_bytes(json.dumps(spoiled(json.loads(report.to_bytes()))).encode()))


_FREE = frozenset({
    "adapter", "commit", "device", "driver", "ending", "evidence", "kernel", "machine", "name", "os", "product", "program", "python",
    "reason", "replay", "runtime", "said", "title", "torch", "url", "value", "vendor", "version",
})  # fmt: skip


class _Tags(HTMLParser):
    """Gathers the names of tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"{tag}@{name}" for name, _ in attrs)}


def test_nothing_hostile_is_shown_raw(tmp_path: Path) -> None:
    report = _hostile(make_failing_report())
    path = tmp_path / "out"
    path.mkdir()
    for name, data in package_files(report).items():
        (path / name).write_bytes(data)
    honest = written(tmp_path / "honest", make_report())
    shown = [
        run("verify", path), run("verify", "--json", path), run("show", path), run("compare", honest, path), run("matrix", path),
        run("compare", "--markdown", honest, path), run("compare", "--json", honest, path), run("matrix", "--markdown", "-", path),
    ]  # fmt: skip
    assert [result.exit_code for result in shown] == [1, 1, 0, 1, 0, 1, 1, 0]
    for result in shown:
        for line in result.output.split("\n"):
            assert line.isprintable() or line.replace("\u200b", "").isprintable(), line
    for index in (5, 7):
        output = shown[index].output
        for raw in ("<script", "@team", "https://", "www.evil"):
            assert raw not in output, raw
        rows = [line for line in output.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows if "✗" in line or "regression" in line}) == 1
    run("matrix", path, "--html", tmp_path / "m.html")
    tags = _Tags()
    tags.feed((tmp_path / "m.html").read_text())
    assert tags.found & {"script", "b", "img"} == set()
    assert not any(tag.partition("@")[2].startswith("on") for tag in tags.found)


@pytest.mark.parametrize("name", ["\x1b[2Jx", "a\nb", "[red]x[/red]"])
def test_a_hostile_path_is_shown_safely(name: str, tmp_path: Path) -> None:
    for command in ("verify", "show", "matrix"):
        result = run(command, tmp_path / name)
        assert result.exit_code == 2
        assert all(line.isprintable() for line in result.output.split("\n"))
        assert name in result.output or "\\" in result.output


def _edited(report: Report, edit: Callable[[Any], object]) -> bytes:
    document = json.loads(report.to_bytes())
    edit(document)
    return json.dumps(document).encode()


def _many_pictures(document: Any) -> None:
    layout = {"tensor_parallel_size": 1, "context_parallel_size": 64, "data_pad_size_multiplier": 1, "sequence_parallel": True}
    layout |= {"allgather_context_parallel": False, "sequences": [1 << 24] * 64}
    shown = {"program": "", "replay": "", "layout": layout}
    document["checks"] = [{**document["checks"][0], "name": f"c{number}", "failure": shown} for number in range(500)]
    document["clauses"][0]["checks"] = [check["name"] for check in document["checks"]]


def _many_times_the_same(document: Any) -> None:
    document["checks"] = [{**document["checks"][0], "name": "c", "said": "x" * 100_000}]
    document["clauses"] = [{**document["clauses"][0], "checks": ["c"] * 2000}]


def _many_patterns(document: Any) -> None:
    entry = {"clause": "DEV-1", "kind": "waiver", "device": "*x" * 20, "reason": "", "url": "", "expires": "2030-01-01"}
    document["exceptions"] = {"digest": "0" * 64, "entries": [entry] * 5000, "problems": []}
    document["host"]["devices"] = [{"index": 0, "name": "x" * 50}] * 5000


@pytest.mark.parametrize("edit", [_many_pictures, _many_times_the_same, _many_patterns])
def test_a_small_report_that_costs_much_is_refused(edit: Callable[[Any], object], tmp_path: Path) -> None:
    (tmp_path / REPORT).write_bytes(_edited(make_report(), edit))
    results = [run("show", tmp_path / REPORT), run("render", tmp_path / REPORT, tmp_path / "out"), run("verify", tmp_path)]
    assert [result.exit_code for result in results] == [2, 2, 1]
    assert all("would be rendered as some" in result.output or "too many entries" in result.output for result in results)


_SPAN = {"lane": 0, "name": "x", "kind": "work", "start": 9, "end": 0}
_EDGE = {"from_lane": 7, "start": 10**350, "lane": 9, "end": 0, "missing": True}


@pytest.mark.parametrize(
    "failure",
    [
        {"timeline": {"lanes": [], "spans": [], "edges": []}},
        {"timeline": {"lanes": [{"title": "x"}], "spans": [{**_SPAN, "lane": 9}], "edges": []}},
        {"timeline": {"lanes": [{"title": "x"}], "spans": [{**_SPAN, "end": 10**350}], "edges": []}},
        {"timeline": {"lanes": [], "spans": [], "edges": [_EDGE]}},
        {"document": {"x": [1, None, 10**300, -0.0]}},
    ],
)
def test_what_cannot_be_drawn_is_no_crash(failure: dict[str, Any], tmp_path: Path) -> None:
    if "timeline" in failure:
        failure = {"timeline": {"in_steps": False, **failure["timeline"]}}

    def edit(document: Any) -> None:
        check = next(check for check in document["checks"] if "failure" in check)
        check["failure"] |= failure

    (tmp_path / REPORT).write_bytes(_edited(make_report(outcomes={"OPS-1": "fail"}), edit))
    assert run("verify", tmp_path).exit_code == 1
    assert run("render", tmp_path / REPORT, tmp_path / "out").exit_code in (0, 2)
    assert run("show", tmp_path / REPORT).exit_code == 0
