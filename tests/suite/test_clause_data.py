"""The clause data is whole, and every check and clause know each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import conformance
from conformance import contract_text
from conformance.clauses import AREAS, CLAUSES, Clause, UnknownClauseError, get_clause
from conformance.outcomes import Outcome
from conformance.recording import assemble
from fakes.faults import CATALOGUE
from harness.accelerator.capabilities import Capability
from reports.contract_document import render_contract

_PACKAGE = Path(conformance.__file__).parent


def _checks() -> dict[str, list[str]]:
    """Clause ids by check, read from the source so that no backend is needed."""
    found: dict[str, list[str]] = {}
    for path in sorted(_PACKAGE.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[f"{path.name}::{node.name}"] = [
                    argument.value
                    for decorator in node.decorator_list
                    if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "clause"
                    for argument in decorator.args
                    if isinstance(argument, ast.Constant)
                ]
    return found


def test_there_are_147_clauses_in_22_areas() -> None:
    assert len(CLAUSES) == 147
    assert len(AREAS) == 22
    assert [clause.id for area in AREAS.values() for clause in area.clauses] == list(CLAUSES)


@pytest.mark.parametrize("clause", CLAUSES.values(), ids=lambda clause: clause.id)
def test_a_clause_is_well_formed(clause: Clause) -> None:
    assert clause.text.endswith((".", ")"))
    if clause.capability is not None:
        Capability.parse(clause.capability)


def test_every_check_names_a_clause() -> None:
    assert [check for check, clause_ids in _checks().items() if not clause_ids] == []


def test_every_clause_has_a_check_or_is_marked() -> None:
    checked = {clause_id for clause_ids in _checks().values() for clause_id in clause_ids}
    unchecked = {clause_id for clause_id in CLAUSES if clause_id not in checked}
    marked = {clause.id for clause in CLAUSES.values() if not clause.has_check}
    assert unchecked == marked
    assert {*CLAUSES, *AREAS} >= contract_text.NOT_YET_CHECKED


def test_every_checked_clause_has_a_fault() -> None:
    checked = {clause_id for clause_ids in _checks().values() for clause_id in clause_ids}
    broken = {clause_id for fault in CATALOGUE.values() for clause_id in fault.clauses}
    assert checked - broken == set()


def test_clauses_of_one_check_share_a_capability() -> None:
    mixed = {
        check: clause_ids
        for check, clause_ids in _checks().items()
        if len({get_clause(clause_id).capability for clause_id in clause_ids}) > 1
    }
    assert mixed == {}


def test_the_contract_document_is_rendered_from_the_data() -> None:
    document = _PACKAGE.parent / "docs" / "contract.md"
    assert document.read_text(encoding="utf-8") == render_contract()


def test_an_unknown_clause_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownClauseError, match="no clause 'DVE-1' in the contract; the nearest id is DEV-1"):
        get_clause("DVE-1")


def test_a_clause_whose_checks_were_not_collected_was_not_run() -> None:
    results = assemble({}, {}, {}, True)
    outcomes = {clause.id: results.clauses[clause.id].outcome for clause in CLAUSES.values()}
    assert {outcomes[clause.id] for clause in CLAUSES.values() if clause.has_check} == {Outcome.NOT_RUN}
    assert {outcomes[clause.id] for clause in CLAUSES.values() if not clause.has_check} == {Outcome.NOT_YET_CHECKED}
