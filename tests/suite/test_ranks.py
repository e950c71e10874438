"""Ranks in a run of the suite: how their failures are reported, and that they end with the run, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from process_tree import descendants
from suite_runner import SuiteRun

from conformance import test_process_group_failures as checks
from conformance.errors import ClauseViolation
from conformance.ranks.pool import DIED, STALLED, RankEnd

Suite = Callable[..., SuiteRun]
_LIMIT = 120.0  # seconds


def test_a_rank_that_raises_fails_its_clause_by_name_and_is_shrunk(suite: Suite) -> None:
    run = suite("--backend=fake-musa", "--fault=pgl-no-world-between", "-k", "PGL-7")
    clause = next(clause for clause in run.results["clauses"] if clause["id"] == "PGL-7")
    assert clause["outcome"] == "fail", run.output
    check = next(check for check in clause["checks"] if check["outcome"] == "fail")
    assert check["text"].startswith("RankFailure: rank ")
    assert "raised in control traffic, round 1" in check["text"].splitlines()[0]
    assert "4 ranks ran conformance.rank_programs.process_group_reload:cycles" in check["text"].splitlines()[0]
    assert "Traceback" in check["text"]
    assert "topology=Topology((), 0)" in run.output
    assert check["replay"]


def test_a_rank_that_stalls_after_another_failed_is_reported_with_its_stack() -> None:
    end = RankEnd(1, STALLED, operation="a new world", stack="Current thread 0x1: in the_culprit", log="its last line")
    with pytest.raises(ClauseViolation, match="rank 0 was killed before destroy, and rank 1 stalled in a new world") as failure:
        checks._require_ends([RankEnd(0, DIED), end], "rank 0 was killed before destroy", failing=0, how="killed")
    assert "in the_culprit" in str(failure.value)
    assert "its last line" in str(failure.value)


def test_one_rank_is_too_few(suite: Suite) -> None:
    run = suite("--backend=fake-musa", "--ranks=1", "-k", "PGL-5")
    clause = next(clause for clause in run.results["clauses"] if clause["id"] == "PGL-5")
    assert clause["outcome"] == "not-run"
    assert {check["text"] for check in clause["checks"]} == {"needs two ranks; this run has 1 (--ranks)"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "conformance", "--backend=fake-musa", "--no-isolate", "-q", "-k", "PGL-6", "-p", "no:xdist"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        deadline = time.monotonic() + _LIMIT
        while len(found := descendants(run.pid)) < 6:  # two servers and four ranks
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run.send_signal(number)
        assert run.wait(timeout=_LIMIT) == 2
    finally:
        run.kill()
        run.wait()
    while any(os.path.exists(f"/proc/{process}") for process in found):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []
