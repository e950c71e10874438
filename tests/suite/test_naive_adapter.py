"""Other people's adapters under the suite: what is weak, or missing, is reported under its clause, and breaks nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from suite_runner import SuiteRun

_WEAKNESSES = {
    "an empty variable is read as unset": ("VIS-1", "VIS-8"),
    "ids pass through int(float())": ("VIS-6",),
    "local ids are mapped twice": ("VIS-14",),
    "a duplicate does not void the list": ("VIS-3",),
    "a bare type becomes musa:musa": ("DEV-1",),
    "an index past the last device is passed on": ("DEV-2",),
    "a change of the variable goes unnoticed": ("DEV-6",),
    "it has no device context": ("DEV-8",),
    "a typo reads as not supported": ("CAP-1",),
    "it serves what it denies": ("CAP-3",),
}
_RIGHT = ("VIS-13", "PGN-1", "PGN-9", "DEV-7", "DEV-9", "DEV-12")

_MISSING = {
    "is_available": "DEV-6",
    "device_type": "DEV-1",
    "device": "DEV-1",
    "device_name": "DEV-1",
    "set_device": "DEV-3",
    "current_device": "DEV-3",
    "device_count": "DEV-6",
    "get_device_properties": "DEV-10",
    "resolve_visible_device_id": "VIS-4",
    "supports": "CAP-1",
    "communication_backend_name": "PGN-1",
    "weight_update_backend": "PGN-9",
    "distributed_device_id": "PGN-9",
    "initial_seed": "CAP-2",
    "get_rng_state": "CAP-2",
    "mem_get_info": "CAP-2",
    "memory_allocated": "CAP-2",
    "stream": "CAP-2",
    "autocast": "CAP-2",
}


def test_each_weakness_is_reported_under_its_clause(suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=fake-musa", "--accelerator=naive_adapter:make", "--effort=quick")
    assert run.exit_code == 1, run.output
    outcomes = run.outcomes()
    for weakness, clauses in _WEAKNESSES.items():
        assert [outcomes[clause] for clause in clauses] == ["fail"] * len(clauses), (weakness, outcomes)
    for clause, outcome in outcomes.items():
        assert outcome != "harness-error", (clause, run.output)
        if clause.startswith(("REG-", "SEL-")) or clause in _RIGHT:
            assert outcome in {"pass", "unsupported"}, (clause, outcome, run.output)


@pytest.mark.parametrize("method", sorted(_MISSING))
def test_a_missing_method_is_a_clause_not_met_by_name(method: str, suite: Callable[..., SuiteRun]) -> None:
    clause = _MISSING[method]
    arguments = ("--backend=fake-musa", f"--accelerator=naive_adapter:without_{method}", "--effort=quick")
    run = suite(*arguments, "-k", clause)
    assert run.exit_code == 1, run.output
    outcomes = run.outcomes()
    assert outcomes[clause] == "fail"
    assert "harness-error" not in outcomes.values(), run.output
    texts = [check["text"] for found in run.results["clauses"] if found["id"] == clause for check in found["checks"]]
    assert any(method in text for text in texts), texts
