"""`--normalizer` puts other people's code under the checks of PGN."""

from __future__ import annotations

from collections.abc import Callable

from suite_runner import SuiteRun

_RIGHT = "--normalizer=harness.process_group.normalizer:normalize_backend"


def exact_word(backend: str, accelerator: object) -> str:
    """The normalizer as it was first written: only the exact word is mapped."""
    return str(accelerator.communication_backend_name) if backend == "nccl" else backend  # type: ignore[attr-defined]


def test_another_normalizer_is_judged(suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=cpu", f"--normalizer={__name__}:exact_word", "--examples=30", "-k", "PGN-1 or PGN-2 or PGN-6 or PGN-8")
    outcomes = run.outcomes()
    assert (outcomes["PGN-1"], outcomes["PGN-2"], outcomes["PGN-8"]) == ("fail", "fail", "pass"), run.output
    assert f"--normalizer={__name__}:exact_word" in run.output
    assert "exact_word('', <harness.accelerator.generic.GenericAccelerator object>) was accepted" in run.output


def test_a_right_one_passes(suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=cpu", _RIGHT, "--effort=quick", "-k", "PGN")
    assert run.exit_code == 0, run.output


def test_one_that_cannot_be_loaded_is_a_usage_error(suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=cpu", "--normalizer=no.such.module:function", "-k", "PGN")
    assert run.exit_code == 4, run.output
    assert "--normalizer=no.such.module:function" in run.output
