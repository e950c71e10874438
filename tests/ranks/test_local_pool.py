"""Ranks on this host: fed many examples, named when they fail, gone at the end."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rank_programs as programs

from conformance.ranks.errors import RankFailure
from conformance.ranks.local_pool import LocalRankPool

CPU = {"backend": "cpu", "accelerator": "", "devices": None, "fault": ""}


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalRankPool]:
    made = LocalRankPool(3, CPU)
    yield made
    made.close()


def is_running(process: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_many_examples_run_on_the_same_ranks(pool: LocalRankPool) -> None:
    before = pool.run(programs.process_id)
    for value in range(100):
        assert pool.run(programs.all_reduce, value=value) == [3 * value + 3] * 3
    assert pool.run(programs.process_id) == before


def test_ranks_have_the_backend_under_test(pool: LocalRankPool) -> None:
    assert pool.run(programs.device_type) == ["cpu"] * 3


@pytest.mark.parametrize(
    ("how", "end", "text"),
    [
        ("raises", "raised", "LookupError: of this rank"),
        ("is killed", "died", "signal SIGKILL"),
        ("exits", "died", "status 7"),
        ("answers no JSON", "raised", "not JSON serializable"),
    ],
)
def test_a_rank_that_fails_is_named_and_the_pool_goes_on(pool: LocalRankPool, how: str, end: str, text: str) -> None:
    old = pool.run(programs.process_id)
    with pytest.raises(RankFailure) as failure:
        pool.run(programs.fails, rank=1, how=how)
    failed = failure.value.ends[1]
    assert (failed.rank, failed.how, failed.operation) == (1, end, "the second all_reduce")
    assert text in failed.text
    assert "rank 1 speaks" in failed.log or how == "is killed"
    assert f"rank 1: {end} in the second all_reduce" in str(failure.value)
    assert str(failure.value).startswith(f"rank 1 {end} in the second all_reduce: ")
    assert not any(map(is_running, old))
    assert pool.run(programs.all_reduce, value=1) == [6] * 3


def test_a_rank_that_stalls_is_found_with_its_stack(pool: LocalRankPool) -> None:
    ends = pool.attempt(programs.fails, timeout=20, rank=2, how="stalls")
    assert [end.how for end in ends] == ["raised", "raised", "stalled"]
    assert "stall_here" in ends[2].stack
    assert "time.sleep" not in ends[2].log
    assert pool.run(programs.all_reduce, value=0) == [3] * 3


def test_a_rank_that_stalls_while_the_others_answer_is_found(pool: LocalRankPool) -> None:
    ends = pool.attempt(programs.one_stalls_while_the_others_answer, timeout=1)
    assert [(end.how, end.value) for end in ends] == [("value", 0), ("stalled", None), ("value", 2)]


def test_when_all_are_late_each_is_named(pool: LocalRankPool) -> None:
    ends = pool.attempt("rank_programs:stall", timeout=0.5)
    assert all(end.how == "raised" and "no attribute 'stall'" in end.text for end in ends)


def test_nothing_is_left_behind() -> None:
    pool = LocalRankPool(2, CPU)
    processes = pool.run(programs.process_id)
    port = pool.run(programs.store_port)[0]
    server = pool.server.process.pid  # type: ignore[union-attr]
    socket.create_connection(("127.0.0.1", port)).close()
    assert all(map(is_running, [*processes, server]))
    pool.close()
    assert not any(map(is_running, [*processes, server]))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    pool.close()
    assert len(pool.run(programs.process_id)) == 2
    pool.close()


def test_a_server_that_is_killed_takes_its_ranks_along_and_is_replaced() -> None:
    pool = LocalRankPool(2, CPU)
    processes = pool.run(programs.process_id)
    open_before = len(os.listdir("/proc/self/fd"))
    pool.server.process.kill()  # type: ignore[union-attr]
    deadline = time.monotonic() + 30
    while any(map(is_running, processes)) and time.monotonic() < deadline:
        os.sched_yield()
    ends = pool.attempt(programs.process_id, timeout=10)
    assert [end.how for end in ends] == ["died", "died"]
    assert not any(map(is_running, processes))
    assert len(pool.run(programs.process_id)) == 2
    assert len(os.listdir("/proc/self/fd")) == open_before
    pool.close()


@pytest.mark.parametrize(
    ("how", "end", "text", "stack"),
    [
        ("aborts", "died", "signal SIGABRT", "in misbehaves"),
        ("stops itself", "stalled", "a signal, such as SIGSTOP, had stopped it", "in misbehaves"),
        ("raises what has no text", "raised", "CannotSayWhatItIs", ""),
        ("raises a long text", "raised", "characters left out", ""),
        ("floods its log and stalls", "stalled", "", "in stall_here"),
        ("dies while its child lives", "died", "status 3", ""),
    ],
)
def test_whatever_a_rank_does_is_reported(pool: LocalRankPool, how: str, end: str, text: str, stack: str) -> None:
    pool.run(programs.misbehaves, how="nothing unusual")
    ends = pool.attempt(programs.misbehaves, timeout=1, how=how)
    assert [end.value for end in ends] == [0, None, 2]
    failed = ends[1]
    assert (failed.how, failed.operation) == (end, how)
    assert text in failed.text
    assert stack in failed.stack and bool(stack) == bool(failed.stack)
    assert "nothing unusual" not in failed.log
    assert ("a long line of the flood" if "floods" in how else f"asked for: {how}") in failed.log
    assert "most recent call first" not in failed.log
    assert len(failed.described()) < 30_000
    assert pool.run(programs.all_reduce, value=1) == [6] * 3


def test_what_a_rank_started_ends_with_it_even_in_a_session_of_its_own(pool: LocalRankPool) -> None:
    daemons = pool.run(programs.starts_a_daemon)
    assert all(map(is_running, daemons))
    pool.end_ranks()
    assert not any(map(is_running, daemons))
    assert pool.run(programs.all_reduce, value=1) == [6] * 3


def test_only_the_rank_itself_answers(pool: LocalRankPool) -> None:
    ranks = pool.run(programs.process_id)
    for _ in range(3):
        assert pool.run(programs.forks_and_both_return) == ranks


def test_answers_of_an_example_that_was_interrupted_are_not_taken_for_the_next_ones(pool: LocalRankPool) -> None:
    old = pool.run(programs.process_id)

    def interrupt(_signal: int, _frame: object) -> None:
        raise InterruptedError("by a timer of the test")

    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(InterruptedError):
            pool.run(programs.one_stalls_while_the_others_answer)
    finally:
        signal.signal(signal.SIGALRM, former)
    assert not any(map(is_running, old))
    assert pool.run(programs.all_reduce, value=1) == [6] * 3


def test_ranks_that_could_not_be_started_are_no_ranks(pool: LocalRankPool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.end_ranks()
    with monkeypatch.context() as patch:
        patch.setattr(pool.server, "start", lambda *_: next(iter(())))
        with pytest.raises(StopIteration):
            pool.run(programs.all_reduce, value=1)
    assert pool.run(programs.all_reduce, value=1) == [6] * 3


def test_a_rank_that_takes_no_more_requests_stalls(pool: LocalRankPool) -> None:
    stopped = pool.run(programs.stops_later)[1]
    deadline = time.monotonic() + 20
    while Path(f"/proc/{stopped}/stat").read_text().rpartition(")")[2].split()[0] != "T" and time.monotonic() < deadline:
        os.sched_yield()
    ends = pool.attempt(programs.length_of, timeout=1, text="x" * 5_000_000)
    assert [end.value for end in ends] == [5_000_000, None, 5_000_000]
    assert (ends[1].how, ends[1].text) == ("stalled", "a signal, such as SIGSTOP, had stopped it")
