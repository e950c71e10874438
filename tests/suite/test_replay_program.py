"""`--replay-program`: one stream program from the command line or a file, run exactly again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from suite_runner import SuiteRun

from conformance.programs.stream_program import StreamProgram
from conformance.programs.stream_steps import Allocate, HostRead, Kernel, Record, WaitEvent

_WAITING = StreamProgram(
    (0, 0), (Allocate("a", 0, 1), Record("e0", 0), WaitEvent(1, "e0"), Kernel(1, "a", 4, keep=True), HostRead("a", 1))
)
_RACING = StreamProgram((0, 0), (Allocate("a", 0, 1), Kernel(1, "a", 4, keep=True)))


def test_a_right_program_passes_with_its_listing_and_timeline(suite: Callable[..., SuiteRun], tmp_path: Path) -> None:
    file = tmp_path / "program.json"
    file.write_text(_WAITING.to_json())
    for source in (_WAITING.to_json(), str(file)):
        run = suite("--backend=fake-musa", f"--replay-program={source}")
        assert run.exit_code == 0, run.output
        assert "  2  s1.wait_event(e0)" in run.output
        assert "<- step 1" in run.output
        assert "a at the end: 3" in run.output
        assert "passed on fake-musa" in run.output


def test_a_race_is_named_and_judges_nobody(suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=fake-musa", f"--replay-program={_RACING.to_json()}")
    assert run.exit_code == 0, run.output
    assert "race: a: step 0 (s0 writes) and step 1 (s1 writes) are not ordered" in run.output
    assert "(undetermined: it depends on a race)" in run.output


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--replay-program={"], "--replay-program: line 1, column 2: not JSON"),
        (["--replay-program=no/such/file"], "--replay-program=no/such/file: cannot be read"),
        (
            ['--replay-program={"program": "streams/1", "streams": [0], "steps": [{"do": "fly"}]}'],
            "steps[0].do: 'fly' is not a kind",
        ),
        (['--replay-program={"program": "streams/1", "streams": [2], "steps": []}'], "needs 3 devices; fake-musa has 2"),
        (["--replay-program={}", "--backend=cpu"], "the document"),
    ],
)
def test_a_program_that_cannot_be_run_is_a_usage_error(suite: Callable[..., SuiteRun], options: list[str], text: str) -> None:
    run = suite("--backend=fake-musa", *options)
    assert run.exit_code == 4, run.output
    assert text in run.output


def test_streams_are_needed(suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=cpu", f"--replay-program={_WAITING.to_json()}")
    assert run.exit_code == 4
    assert "cpu supports no streams" in run.output


def test_a_schedule_is_a_simulated_machines(suite: Callable[..., SuiteRun]) -> None:
    run = suite("--backend=cpu", "--schedule=lazy")
    assert run.exit_code == 4
    assert "--schedule=lazy: a simulated machine has schedules" in run.output
    run = suite("--backend=fake-musa", "--schedule=sometimes")
    assert run.exit_code == 4
    assert "schedule='sometimes' is not available" in run.output
