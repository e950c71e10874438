"""Every persona passes: what it has is checked, what it lacks is "unsupported" with the evidence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from suite_runner import SuiteRun

from conformance.clauses import CLAUSES
from fakes.personas import PERSONAS

_LEFT_OPEN = {"not-yet-checked", "not-checkable"}


@pytest.mark.thorough
@pytest.mark.parametrize("persona", sorted(set(PERSONAS) - {"musa", "minimal"}))
def test_a_vendors_persona_passes(persona: str, suite: Callable[..., SuiteRun]) -> None:
    run = suite(f"--backend=fake-{persona}", "--effort=quick")
    assert run.exit_code == 0, run.output
    assert not {"fail", "flaky", "harness-error", "not-run"} & set(run.outcomes().values()), run.output


def test_the_least_that_the_contract_allows_passes(suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=fake-minimal", "--effort=quick")
    assert run.exit_code == 0, run.output
    outcomes = run.outcomes()
    for clause in CLAUSES.values():
        if clause.capability is not None:
            assert outcomes[clause.id] in {"unsupported", *_LEFT_OPEN}, (clause.id, outcomes[clause.id])
    assert outcomes["DEV-7"] == "pass"
    unsupported = [clause for clause in run.results["clauses"] if clause["outcome"] == "unsupported"]
    assert unsupported
    for check in (check for clause in unsupported for check in clause["checks"] if check["outcome"] == "unsupported"):
        assert check["text"].strip().splitlines()[0] in run.output, check
