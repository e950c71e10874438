"""Runs a program on ranks that are forked from a single-threaded child of the tests, and hands back what each of them did.

For: tests over real gloo. Every rank is ended, and every file gone, when the call returns.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import tempfile
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from conformance.children import ChildProcesses

TIMEOUT = timedelta(seconds=20)
"""Long, since no rank is meant to fail here: on a busy machine a rank may well come seconds after the others."""


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended: with a value, an error (its text with notes and its class), a signal, or not within the limit."""

    rank: int
    value: Any = None
    error: str = ""
    error_type: str = ""
    signal: str = ""
    timed_out: bool = False


def run_ranks(children: ChildProcesses, program: str, size: int = 2, *, limit: float = 40, **arguments: Any) -> list[RankEnd]:
    """Run `program` ("module:function", called with rank, size, folder and the arguments) on `size` ranks."""
    ends = children.run(
        f"{__name__}:fork_ranks",
        backend={},
        environment={"TORCH_CPP_LOG_LEVEL": "FATAL"},
        fresh_interpreter=False,
        timeout=limit + 20,
        arguments={"program": program, "size": size, "limit": limit, "arguments": arguments},
    )
    return [RankEnd(**end) for end in ends]


def values(ends: list[RankEnd]) -> list[Any]:
    """The values of ranks that all ended well."""
    failed = [end for end in ends if end.error or end.signal or end.timed_out]
    assert not failed, "\n".join(str(end.error or end) for end in failed)
    return [end.value for end in ends]


def fork_ranks(_make_accelerator: object, program: str, size: int, limit: float, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """In the child: fork, collect, end."""
    module, _, function = program.partition(":")
    run = getattr(importlib.import_module(module), function)
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        leave_end, keep_end = os.pipe()
        for rank in range(size):
            read_end, write_end = os.pipe()
            process = os.fork()
            if process == 0:
                os.close(keep_end)
                _be_rank(run, rank, size, Path(folder), arguments, write_end, leave_end)
            os.close(write_end)
            pipes.append(read_end)
            processes.append(process)
        os.close(leave_end)
        return _collect(pipes, processes, keep_end, limit)


def _be_rank(run: Any, rank: int, size: int, folder: Path, arguments: dict[str, Any], write_end: int, leave_end: int) -> None:
    answer: dict[str, Any] = {}
    try:
        answer = {"value": run(rank, size, folder, **arguments)}
    except BaseException as error:  # noqa: BLE001 - the test judges it
        answer = {"error": "".join(traceback.format_exception(error)), "error_type": type(error).__name__}
    finally:
        os.write(write_end, json.dumps(answer).encode())
        os.close(write_end)
        os.read(leave_end, 1)  # a rank that leaves ends connections on which others may still wait for what it sent
        os._exit(0)


def _collect(pipes: list[int], processes: list[int], keep_end: int, limit: float) -> list[dict[str, Any]]:
    deadline = time.monotonic() + limit
    data = dict.fromkeys(pipes, b"")
    waiting = set(pipes)
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for pipe in ready:
            part = os.read(pipe, 65536)
            data[pipe] += part
            if not part:
                waiting.discard(pipe)
    os.close(keep_end)
    ends = []
    for rank, (pipe, process) in enumerate(zip(pipes, processes, strict=True)):
        late = pipe in waiting
        if late:
            os.kill(process, signal.SIGKILL)
        status = os.waitpid(process, 0)[1]
        os.close(pipe)
        end: dict[str, Any] = json.loads(data[pipe]) if data[pipe] else {}
        if late:
            end = {"timed_out": True}
        elif os.WIFSIGNALED(status):
            end = {"signal": signal.Signals(os.WTERMSIG(status)).name}
        ends.append({"rank": rank, **end})
    return ends
