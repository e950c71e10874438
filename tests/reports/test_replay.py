"""`verify --replay`: what is run, with which arguments, and how outcomes are compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from report_factory import make_failing_report, make_report

from reports import replay as replaying
from reports.command_line import main
from reports.errors import ReplayError
from reports.model import Report
from reports.package import package_files, write_package
from reports.replay import ReplayOptions, replay, suite_arguments


def _results(report: Report, **outcomes: str) -> dict[str, Any]:
    """The document of `--results` of a run that found what the report says, but for `outcomes`, as DEV_1="fail"."""
    other = {name.replace("_", "-"): outcome for name, outcome in outcomes.items()}
    return {
        "clauses": [
            {"id": clause.id, "outcome": other.get(clause.id, clause.outcome), "checks": [{"replay": f"again {clause.id}"}]}
            for clause in report.clauses
        ]
    }


def _part(report: Report, part: str, **changes: Any) -> Report:
    return report.model_copy(update={part: getattr(report, part).model_copy(update=changes)})


def test_the_same_outcomes_agree() -> None:
    report = make_failing_report()
    result = replay(report, ReplayOptions(seed=3), lambda _: _results(report))
    assert (result.differences, result.seed) == ((), 3)
    assert result.agreed == sum(clause.outcome not in ("not-run", "not-checkable", "not-yet-checked") for clause in report.clauses)


def test_other_outcomes_are_differences() -> None:
    report = make_failing_report()
    found = _results(
        report, DEV_1="pass", DEV_2="fail", DEV_3="unsupported", DEV_4="fail", RNG_2="fail", DEV_5="pass", DEV_6="not-run"
    )
    result = replay(report, ReplayOptions(), lambda _: found)
    assert [(each.clause, each.reported, each.found) for each in result.differences] == [
        ("DEV-1", "fail", "pass"),
        ("DEV-2", "pass", "fail"),
        ("DEV-3", "pass", "unsupported"),
    ]
    assert result.differences[1].replay == "again DEV-2"
    assert result.without_verdict == ("DEV-6",)


def test_only_the_clauses_asked_for_are_compared() -> None:
    report = make_report()
    found = _results(report, DEV_1="fail", DEV_10="fail", STR_1="not-run")
    result = replay(report, ReplayOptions(clauses=("dev-10", "STR")), lambda _: found)
    assert [each.clause for each in result.differences] == ["DEV-10"]
    assert result.without_verdict == ("STR-1",)
    assert result.agreed == sum(clause.id.startswith("STR") for clause in report.clauses) - 1


def test_a_run_without_verdicts_is_no_answer() -> None:
    report = make_report()
    outcomes = {clause.id.replace("-", "_"): "not-run" for clause in report.clauses}
    with pytest.raises(ReplayError, match="takes such a device"):
        replay(report, ReplayOptions(), lambda _: _results(report, **outcomes))


def test_seeds_are_drawn_anew() -> None:
    report = make_report()
    seeds = {replay(report, ReplayOptions(), lambda _: _results(report)).seed for _ in range(4)}
    assert len(seeds) == 4


def test_the_arguments() -> None:
    fake = make_failing_report()
    assert suite_arguments(fake, ReplayOptions(clauses=("dev-1", "STR")), 5) == [
        "--hypothesis-seed=5", "--examples=100", "--tier=multi-node", "--backend=fake-musa", "--devices=2", "-k", "DEV-1 or STR",
    ]  # fmt: skip
    real = make_report()
    assert suite_arguments(real, ReplayOptions(examples=7), 0) == [
        "--hypothesis-seed=0", "--examples=7", "--tier=multi-node", "--backend=musa",
    ]  # fmt: skip


def test_the_reports_own_command_line_is_not_used() -> None:
    report = _part(make_report(), "run", argv=("--backend=musa", "-p", "evil", "--rootdir=/"))
    assert suite_arguments(report, ReplayOptions(), 0) == suite_arguments(make_report(), ReplayOptions(), 0)


@pytest.mark.parametrize(
    ("part", "field", "value", "text"),
    [
        ("backend", "name", "-p", "cannot be the name"),
        ("backend", "name", "x --fault=y", "cannot be the name"),
        ("backend", "name", "", "cannot be the name"),
        ("backend", "name", "\x1b[2J", r"\\x1b\[2J"),
        ("backend", "accelerator", "os:system", "allow it with --allow-code=os:system"),
        ("backend", "normalizer", "a.b:c", "--allow-code=a.b:c"),
        ("backend", "aligner", "a.b:c", "--allow-code=a.b:c"),
        ("backend", "accelerator", "a b", "no module:name"),
        ("backend", "accelerator", "-p:x", "no module:name"),
        ("run", "fault", "no-such-fault", "not in this catalogue"),
        ("suite", "contract_revision", "1999.1", "of contract 1999.1"),
    ],
)
def test_what_is_not_replayed(part: str, field: str, value: str, text: str) -> None:
    with pytest.raises(ReplayError, match=text):
        suite_arguments(_part(make_report(), part, **{field: value}), ReplayOptions(), 0)


def test_code_that_the_verifier_allows() -> None:
    report = _part(make_report(), "backend", accelerator="mine.adapter:make", aligner="mine:align")
    options = ReplayOptions(allowed_code=frozenset({"mine.adapter:make", "mine:align"}))
    assert suite_arguments(report, options, 0)[3:] == ["--accelerator=mine.adapter:make", "--aligner=mine:align"]


def test_clauses_that_the_contract_has() -> None:
    for name in ("DEV-99", "x or y", "-p"):
        with pytest.raises(ReplayError, match="neither a clause nor an area"):
            suite_arguments(make_report(), ReplayOptions(clauses=(name,)), 0)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = make_failing_report()
    write_package(tmp_path / "out", package_files(report))
    given: list[list[str]] = []

    def runner(**outcomes: str) -> None:
        monkeypatch.setattr(replaying, "run_suite", lambda arguments: (given.append(arguments), _results(report, **outcomes))[1])

    runner()
    result = CliRunner().invoke(main, ["verify", str(tmp_path / "out"), "--replay", "--seed", "11"])
    assert result.exit_code == 0, result.output
    assert "With the seed 11" in result.output
    assert "does not show on which device" in result.output
    assert given[0][0] == "--hypothesis-seed=11"
    runner(DEV_2="not-run", DEV_3="not-run")
    result = CliRunner().invoke(main, ["verify", str(tmp_path / "out"), "--replay"])
    assert result.exit_code == 0, result.output
    assert "– The suite, run here, finds the same" in result.output, "what was not compared is not said to be the same"
    assert "2 clauses have a verdict in the report and none here, so nothing is said of them: DEV-2, DEV-3" in result.output
    runner(DEV_2="fail")
    result = CliRunner().invoke(main, ["verify", str(tmp_path / "out"), "--replay", "--json"])
    assert result.exit_code == 1
    step = json.loads(result.stdout)["steps"][-1]
    assert (step["id"], step["findings"][0]["message"]) == ("replay", "reported pass, here fail; again: again DEV-2")
    result = CliRunner().invoke(main, ["verify", str(tmp_path / "out"), "--replay", "--clause", "nothing"])
    assert (result.exit_code, "neither a clause nor an area" in result.stderr) == (2, True)


def test_the_suite_itself_runs_in_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that would steer pytest from the environment do not reach it."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    results = replaying.run_suite(["--backend=cpu", "--tier=host", "--examples=2", "--hypothesis-seed=1", "-k", "REG-1 or REG-3"])
    outcomes = {clause["id"]: clause["outcome"] for clause in results["clauses"]}
    assert outcomes["REG-3"] == "pass"
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ReplayError, match="exit code 1 and without results"):
        replaying.run_suite([])
