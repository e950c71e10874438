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
    "the CPU's generator is the default": ("RNG-8",),
    "PyTorch warns of autocast dtypes and runs in full precision": ("AMP-2",),
    "the allocator's other settings are lost": ("MEM-9",),
    "it serves what it denies": ("CAP-3",),
}
_RIGHT = ("VIS-13", "PGN-1", "PGN-9", "DEV-7", "DEV-9", "DEV-12")

_MISSING: tuple[dict[str, str], ...] = (
    # What much else needs, apart.
    {"is_available": "DEV-6"},
    {"device_type": "DEV-1"},
    {"device": "DEV-1"},
    {"set_device": "DEV-3"},
    {"current_device": "DEV-3"},
    {"device_count": "DEV-6"},
    {"supports": "CAP-1", "mem_get_info": "MEM-1"},
    {"memory_allocated": "MEM-2", "communication_backend_name": "PGN-1"},
    # What nothing else needs, together.
    {
        "device_name": "DEV-1",
        "get_device_properties": "DEV-10",
        "resolve_visible_device_id": "VIS-4",
        "empty_cache": "MEM-3",
        "ipc_collect": "MEM-8",
        "set_allocator_expandable_segments": "MEM-9",
        "manual_seed_all": "RNG-4",
        "initial_seed": "RNG-5",
        "set_rng_state": "RNG-7",
        "autocast": "AMP-1",
        "weight_update_backend": "PGN-9",
        "distributed_device_id": "PGN-9",
    },
    {"manual_seed": "RNG-1", "get_rng_state": "RNG-2", "memory_reserved": "MEM-3"},
)
"""The clause under which each missing method is reported."""


def test_each_weakness_is_reported_under_its_clause(suite: Callable[..., SuiteRun]) -> None:
    run = suite(
        "--backend=fake-musa",
        "--accelerator=naive_adapter:make",
        "--effort=quick",
        "--no-shrink",
        "--tier=multi-device",
    )
    assert run.exit_code == 1, run.output
    outcomes = run.outcomes()
    for weakness, clauses in _WEAKNESSES.items():
        assert [outcomes[clause] for clause in clauses] == ["fail"] * len(clauses), (weakness, outcomes)
    for clause, outcome in outcomes.items():
        assert outcome != "harness-error", (clause, run.output)
        if clause.startswith(("REG-", "SEL-")) or clause in _RIGHT:
            assert outcome in {"pass", "unsupported"}, (clause, outcome, run.output)


@pytest.mark.parametrize("missing", _MISSING, ids=lambda missing: next(iter(missing)))
def test_a_missing_method_is_a_clause_not_met_by_name(missing: dict[str, str], suite: Callable[..., SuiteRun]) -> None:
    accelerator = f"--accelerator=naive_adapter:without_{'__'.join(missing)}"
    arguments = ("--backend=fake-musa", accelerator, "--examples=5", "--no-shrink")
    run = suite(*arguments, "-k", " or ".join(missing.values()))
    assert run.exit_code == 1, run.output
    assert "harness-error" not in run.outcomes().values(), run.output
    for method, clause in missing.items():
        texts = [check["text"] for found in run.results["clauses"] if found["id"] == clause for check in found["checks"]]
        assert run.outcomes()[clause] == "fail", (method, texts)
        assert any(method in text for text in texts), (method, texts)
