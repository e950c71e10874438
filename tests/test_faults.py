"""Faults of the catalogue make a check of a clause that they name fail: the suite has teeth.

One fault a clause in every run, and all of them under `--thorough`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from suite_runner import SuiteRun

from conformance.clauses import get_clause
from fakes.faults import CATALOGUE

_KILLING = {"fail", "flaky"}
_SUITE = Path(__file__).parent.parent / "conformance"
# Those that end their process are tried in tests/suite/test_isolation.py.
_ANSWERING = sorted(fault.id for fault in CATALOGUE.values() if not fault.ends_process)


def _one_a_clause() -> set[str]:
    """For each clause the first fault that names it first, else the first that names it."""
    first: dict[str, str] = {}
    for rank in range(max(len(fault.clauses) for fault in CATALOGUE.values())):
        for fault_id in _ANSWERING:
            clauses = CATALOGUE[fault_id].clauses
            if rank < len(clauses):
                first.setdefault(clauses[rank], fault_id)
    return set(first.values())


_EVERY_RUN = _one_a_clause()


@pytest.mark.parametrize(
    "fault_id",
    [pytest.param(fault_id, marks=() if fault_id in _EVERY_RUN else pytest.mark.thorough) for fault_id in _ANSWERING],
)
def test_the_suite_finds_the_fault(fault_id: str, suite: Callable[..., SuiteRun]) -> None:
    """Only the checks of the fault's clauses run, which is enough and much faster: a short look first, then whole runs from
    a few fixed seeds, since one run of a hundred examples may miss what is rare."""
    fault = CATALOGUE[fault_id]
    for effort, seed in (("quick", 0), ("default", 0), ("default", 1), ("default", 2)):
        arguments = (
            f"--backend=fake-{fault.personas[0]}",
            f"--fault={fault_id}",
            f"--hypothesis-seed={seed}",
            f"--effort={effort}",
        )
        run = suite(*arguments, "--no-shrink", "-x", *_checks_of(fault.clauses))
        if run.exit_code == 1:
            break
    found = {clause_id for clause_id, outcome in run.outcomes().items() if outcome in _KILLING}
    assert run.exit_code == 1, run.output
    assert found & set(fault.clauses), (
        f"{fault_id} must break one of {fault.clauses}; failing clauses: {sorted(found)}\n{run.output}"
    )


def _checks_of(clauses: tuple[str, ...]) -> list[str]:
    """The suite's checks of these clauses: collecting the others takes longer than many a fault."""
    return [check for check, named in _CLAUSES_OF.items() if named & set(clauses)]


def _clauses_of_checks() -> dict[str, set[str]]:
    """The clauses that each check names, read from the decorators."""
    found = {}
    for path in sorted(_SUITE.glob("test_*.py")):
        for function in ast.parse(path.read_text(encoding="utf-8")).body:
            for decorator in getattr(function, "decorator_list", ()):
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "clause":
                    named = {argument.value for argument in decorator.args if isinstance(argument, ast.Constant)}
                    found[f"conformance/{path.name}::{function.name}"] = named
    return found


_CLAUSES_OF = _clauses_of_checks()


def test_every_clause_with_a_check_has_a_fault() -> None:
    checked = set().union(*_CLAUSES_OF.values())
    assert checked <= {clause for fault in CATALOGUE.values() for clause in fault.clauses}


@pytest.mark.parametrize("fault_id", sorted(CATALOGUE))
def test_the_fault_is_described(fault_id: str) -> None:
    fault = CATALOGUE[fault_id]
    assert fault.id == fault_id
    assert fault.clauses
    for clause_id in fault.clauses:
        get_clause(clause_id)
    assert fault.summary.strip().endswith(".")
    assert fault.seen_in


@pytest.mark.thorough  # `tox -e cpu` shows it
def test_without_a_fault_nothing_fails(suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=fake-musa", "--effort=quick")
    assert run.exit_code == 0, run.output
    assert not {"fail", "flaky", "harness-error", "not-run"} & set(run.outcomes().values()), run.output
