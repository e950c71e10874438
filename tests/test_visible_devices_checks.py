"""The checks of VIS over adapters of other makes, and over every vendor's grammar."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from suite_runner import SuiteRun


def vis(run: SuiteRun) -> dict[str, str]:
    return {clause_id: str(outcome) for clause_id, outcome in run.outcomes().items() if clause_id.startswith("VIS-")}


def test_a_right_adapter_of_another_make_passes(suite: Callable[..., SuiteRun]) -> None:
    outcomes = vis(suite("--accelerator=visible_devices_accelerators:Foreign", "-k", "VIS", "--effort=quick"))
    assert not {clause_id for clause_id, outcome in outcomes.items() if outcome not in ("pass", "not-run", "unsupported")}, outcomes
    assert outcomes["VIS-4"] == "pass"


def test_a_hasty_adapter_fails_where_it_is_wrong(suite: Callable[..., SuiteRun]) -> None:
    outcomes = vis(suite("--accelerator=visible_devices_accelerators:Hasty", "-k", "VIS"))
    failing = {clause_id for clause_id, outcome in outcomes.items() if outcome == "fail"}
    reasons = {"VIS-1", "VIS-2", "VIS-3", "VIS-4", "VIS-5", "VIS-6", "VIS-7", "VIS-8", "VIS-9", "VIS-10", "VIS-14"}
    assert failing <= reasons, outcomes
    assert {"VIS-1", "VIS-2", "VIS-3", "VIS-6", "VIS-8", "VIS-14"} <= failing, outcomes


@pytest.mark.parametrize("backend", ["cuda", "npu", "xpu", "mlu", "cpu"])
def test_the_host_tier_needs_no_device(suite: Callable[..., SuiteRun], backend: str) -> None:
    run = suite(f"--backend={backend}", "-k", "VIS", "--effort=quick")
    assert run.exit_code == 0, run.output
    others = {"not-run", "unsupported"} if backend == "cpu" else {"not-run"}
    assert set(vis(run).values()) <= {"pass"} | others, run.output
