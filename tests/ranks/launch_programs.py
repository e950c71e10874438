"""What a launch does, without torchrun: its processes are forked here, and meet over a file. For the tests of `torchrun_pool`."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import rank_programs as programs
from torch._C._distributed_c10d import FileStore

from conformance.ranks import followers, launch, torchrun_pool
from conformance.ranks.errors import RankFailure
from conformance.ranks.launch import Launch
from conformance.ranks.server import ForkedRankServer
from conformance.ranks.torchrun_pool import LaunchedRun, TorchrunRankPool

CPU = {"backend": "cpu", "accelerator": "", "devices": None, "fault": ""}
SIZE = 3


def a_whole_launch(_make_accelerator: object) -> dict[str, Any]:
    """Examples, failures, the death of a process of the launch, and the end."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "launchers")
        launch._launchers_store = lambda given: FileStore(path, given.size)  # what torchrun would give
        processes = [_forked_follower(Launch(rank, SIZE, 2, "127.0.0.1")) for rank in range(1, SIZE)]
        run = LaunchedRun(Launch(0, SIZE, 2, "127.0.0.1"))
        pool = TorchrunRankPool(run, CPU)
        before = pool.run(programs.process_id)
        found["sums"] = [pool.run(programs.all_reduce, value=value) for value in range(5)]
        found["same ranks"] = pool.run(programs.process_id) == before
        for how in ("raises", "is killed", "stalls"):
            try:
                pool.run(programs.fails, timeout=20, rank=1, how=how)
            except RankFailure as failure:
                found[how] = [failure.culprit.rank, failure.culprit.how, failure.culprit.operation, failure.culprit.log]
                found[f"{how}, stack"] = failure.culprit.stack
            found[f"after it {how}"] = pool.run(programs.all_reduce, value=1)
        found["interrupted"] = _interrupted(pool)
        found["after it was interrupted"] = pool.run(programs.all_reduce, value=1)
        found["lost before"] = pool.lost
        os.kill(processes[1], signal.SIGKILL)
        found["ends"] = [end.how for end in pool.attempt(programs.process_id)]
        found["lost"] = pool.lost
        found["ends again"] = [[end.how, end.text] for end in pool.attempt(programs.process_id)]
        pool.close()
        run.close(5)
        found["exits"] = [_ended(process) for process in processes]
        found["ranks still there"] = [process for process in before if os.path.exists(f"/proc/{process}")]
    return found


def a_follower_is_stopped(_make_accelerator: object) -> str:
    """What is said where a process of the launch neither answers nor ends."""
    torchrun_pool._ANSWER_LIMIT = 1.0
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "launchers")
        launch._launchers_store = lambda given: FileStore(path, given.size)
        process = _forked_follower(Launch(1, 2, 2, "127.0.0.1"))
        run = LaunchedRun(Launch(0, 2, 2, "127.0.0.1"))
        pool = TorchrunRankPool(run, CPU)
        pool.run(programs.process_id)
        os.kill(process, signal.SIGSTOP)
        pool.close()
        run.close(0)
        os.kill(process, signal.SIGKILL)
        _ended(process)
    return run.lost


def _interrupted(pool: TorchrunRankPool) -> str:
    def interrupt(_signal: int, _frame: object) -> None:
        raise InterruptedError("by a timer")

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        return str(pool.run(programs.one_stalls_while_the_others_answer))
    except InterruptedError as error:
        return str(error)


def rank_0_goes_away(_make_accelerator: object) -> list[str]:
    """The others of a launch whose rank 0 closes its connections without a word."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "launchers")
        launch._launchers_store = lambda given: FileStore(path, given.size)
        processes = [_forked_follower(Launch(1, 2, 1, "127.0.0.1"))]
        run = LaunchedRun(Launch(0, 2, 1, "127.0.0.1"))
        TorchrunRankPool(run, CPU).run(programs.process_id)
        for follower in run.followers:
            follower.close()
        return [_ended(process) for process in (*processes, run._own_follower)]


def asked_to_end(_make_accelerator: object) -> str:
    """Why the run cannot go on after torchrun's signal."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "launchers")
        launch._launchers_store = lambda given: FileStore(path, given.size)
        run = LaunchedRun(Launch(0, 1, 1, "127.0.0.1"))
        os.kill(os.getpid(), signal.SIGTERM)
        run.close(0)
        return run.lost


def _forked_follower(given: Launch) -> int:
    child = os.fork()
    if child == 0:
        code = 99
        try:
            server = ForkedRankServer()
            server.warm_up()
            code = followers.serve(given, launch.find_meeting(given), server)
        finally:
            os._exit(code)
    return child


def _ended(process: int) -> str:
    status = os.waitpid(process, 0)[1]
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
