"""Comparing two reports: what is a regression, what is not, in every form."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner
from report_factory import make_report

from reports.command_line import main
from reports.comparison import Kind, compare, kind_of
from reports.errors import ComparisonError
from reports.model import OutcomeName
from reports.package import package_files, write_package

_OUTCOMES: tuple[OutcomeName, ...] = get_args(OutcomeName)
_BAD = {"fail", "flaky", "harness-error", "known-failure", "waived"}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(_OUTCOMES, _OUTCOMES)))
def test_every_pair_of_outcomes(old: OutcomeName, new: OutcomeName) -> None:
    kind = kind_of(old, new)
    assert (kind is Kind.REGRESSION) == (new in _BAD and old not in _BAD)
    assert (kind is Kind.FIX) == (old in _BAD and new == "pass")
    assert (kind is Kind.NEWLY_UNSUPPORTED) == (new == "unsupported" and old in {"pass", *_BAD})
    assert (kind is Kind.NEWLY_SUPPORTED) == (old == "unsupported" and new == "pass")
    unknown = {"not-run", "not-checkable", "not-yet-checked"}
    assert (kind is Kind.NO_LONGER_CHECKED) == (old not in unknown and new in unknown)
    assert (kind is None) == (old == new or {old, new} <= unknown)


def test_changes_by_clause() -> None:
    old = make_report(outcomes={"DEV-1": "fail", "DEV-2": "fail", "DEV-3": "unsupported", "DEV-4": "not-run"})
    new = make_report(outcomes={"DEV-2": "flaky", "DEV-6": "fail", "DEV-7": "unsupported", "DEV-9": "not-run"})
    comparison = compare(old, new)
    assert [(change.clause, change.kind) for change in comparison.changes] == [
        ("DEV-6", Kind.REGRESSION),
        ("DEV-9", Kind.NO_LONGER_CHECKED),
        ("DEV-7", Kind.NEWLY_UNSUPPORTED),
        ("DEV-1", Kind.FIX),
        ("DEV-3", Kind.NEWLY_SUPPORTED),
        ("DEV-4", Kind.NEWLY_CHECKED),
        ("DEV-2", Kind.STILL_FAILING),
    ]
    assert comparison.unchanged == len(new.clauses) - 7
    assert compare(new, new).changes == ()


def test_levels_and_status() -> None:
    comparison = compare(make_report(), make_report(outcomes={"MEM-1": "fail"}, tree="dirty"))
    assert comparison.levels == (
        ("status", "hardware", "preview"),
        ("level memory", "attained", "not-attained"),
        ("level full", "attained", "not-attained"),
    )


@pytest.mark.parametrize(("field", "value"), [("contract_revision", "2025.1"), ("contract_digest", "0" * 64)])
def test_other_contracts_are_not_compared(field: str, value: str) -> None:
    old = make_report()
    new = old.model_copy(update={"suite": old.suite.model_copy(update={field: value})})
    with pytest.raises(ComparisonError, match=field):
        compare(old, new)


def test_the_command(tmp_path: Path) -> None:
    reports = {
        "old": make_report(outcomes={"DEV-1": "fail"}),
        "same": make_report(outcomes={"DEV-1": "fail"}),
        "new": make_report(),
    }
    for name, report in reports.items():
        write_package(tmp_path / name, package_files(report))

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(
            main, ["compare", *(str(tmp_path / each) if not each.startswith("-") else each for each in arguments)]
        )
        return result.exit_code, result.output

    assert run("old", "same")[0] == run("old", "new")[0] == 0
    code, shown = run("new", "old")
    assert (code, "1 regression, 1 changes" in shown, "device('cuda') answered" in shown) == (1, True, True)
    code, text = run("--markdown", "new", "old")
    assert code == 1
    assert "| DEV-1 | MUST | regression | pass | fail | device('cuda') answered cuda:0; due was musa:0 |" in text.splitlines()
    code, document = run("--json", "new", "old")
    data = json.loads(document)
    assert (code, data["regressions"], data["changes"][0]["clause"], data["changes"][0]["kind"]) == (1, 1, "DEV-1", "regression")
    assert run("new", "nowhere")[0] == 2
