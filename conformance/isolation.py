"""Checks in a worker process, so that a runtime that aborts, crashes or hangs fails one clause and the run goes on.

For: starting pytest-xdist's workers, writing down the last input before it runs, saying how a worker ended, and a bounded attempt to make
the input smaller in fresh processes. Not for: running single examples apart (`forked_examples.py`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_JOURNALS = pytest.StashKey[Path]()  # in the controller: the folder
_SECONDS = pytest.StashKey[float]()  # in the controller: how long a check may take
_WORKER_JOURNAL = "conformance_journal"  # in a worker's input: both, for it
SMALLEST = "ACCELERATOR_CONFORMANCE_SMALLEST"
"""The environment variable with the file where the search for a smaller input keeps what it has."""
HANGS = "ACCELERATOR_CONFORMANCE_HANGS"
"""The environment variable that is set where the search is for an input that hangs: elsewhere one that is late is no find, but the load
of the machine."""
_FRAME = re.compile(r'File "(?:[^"\n]*/)?([^"/\n]+)", line (\d+) in (\S+)')  # of faulthandler, innermost first
_LONGEST_EXAMPLE = 4000  # characters
_SHRINK_SECONDS = 60.0
_SHRINK_EXAMPLES = 40


def start_workers(config: pytest.Config) -> None:
    """Have one worker run the checks, unless the command line says how many; a worker that dies is replaced.

    A hang must end the process, since the runtime may never return to Python; the journal's watchdog does that instead of pytest-timeout.
    """
    option = config.option
    if getattr(option, "numprocesses", None) is None:
        option.numprocesses, option.dist, option.tx = 1, "load", ["popen"]
    option.maxworkerrestart = option.maxworkerrestart or "100000"
    config.stash[_SECONDS] = float(option.timeout)
    option.timeout = 0
    config.stash[_JOURNALS] = Path(tempfile.mkdtemp(prefix="accelerator-conformance-"))


def tell_worker(node: Any) -> None:
    """Give a new worker the path of its journal, where the run is isolated."""
    folder = node.config.stash.get(_JOURNALS, None)
    if folder is not None:
        node.workerinput[_WORKER_JOURNAL] = str(folder / node.gateway.id), node.config.stash[_SECONDS]


def close(config: pytest.Config) -> None:
    """Remove the journals; only the controlling process has them."""
    folder = config.stash.get(_JOURNALS, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def shown_example(arguments: dict[str, Any]) -> str:
    """The drawn arguments of a check, as a person reads them."""
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items() if name != "backend")[:_LONGEST_EXAMPLE]


class Journal:
    """The last input that a worker ran, and where it hung, in files that outlive it."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._file = path.open("wb", buffering=0)
        self._stack = path.with_suffix(".stack").open("w")
        self._seconds = seconds

    @classmethod
    def of_worker(cls, config: pytest.Config) -> Journal | None:
        """This worker's journal; None where the run is not isolated."""
        given = getattr(config, "workerinput", {}).get(_WORKER_JOURNAL)
        return None if given is None else cls(Path(given[0]), given[1])

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """End this process if the block takes too long; it need not return to Python for that."""
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._stack)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def write(self, example: dict[str, Any]) -> None:
        """Write down an example before it runs; it replaces the one before."""
        self._file.seek(0)
        self._file.write(shown_example(example).encode())
        self._file.truncate()


@dataclass(frozen=True)
class Crash:
    """A check that took its worker down: how the worker ended, and the input that ran last (empty where it has none)."""

    ending: str
    example: str
    hung: bool = False

    def __str__(self) -> str:
        return f"{self.ending}; last input: {self.example}" if self.example else self.ending


def crash_of(config: pytest.Config, worker: Any) -> Crash:
    """What is known of a worker's end."""
    folder = config.stash.get(_JOURNALS, None)
    path = Path(os.devnull) if folder is None else folder / worker.gateway.id
    stack = path.with_suffix(".stack")
    # The watchdog writes every thread's stack, the main thread's last.
    main_thread = stack.read_text(errors="replace").rpartition("Thread 0x")[2] if stack.exists() else ""
    place = _FRAME.search(main_thread)
    ending = (
        _ending(worker)
        if place is None
        else f"this check hung in {place[3]} ({place[1]}, line {place[2]}), and its process was ended"
    )
    return Crash(ending, path.read_text(errors="replace") if path.exists() else "", hung=place is not None)


def _ending(worker: Any) -> str:
    """How a worker's process ended, from its exit status."""
    process = getattr(getattr(worker.gateway, "_io", None), "popen", None)
    if process is None:
        return "the process that ran this check was lost"
    try:
        status = process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return "the process that ran this check stopped answering"
    if status < 0:
        return f"the process that ran this check ended with {signal.Signals(-status).name}"
    return f"the process that ran this check exited with status {status}"


def make_smaller(command_line: list[str], check: str, *, hung: bool) -> tuple[str, str] | None:
    """Look for a small input that ends the process too: (how it ends, the input), or None where none was found in the time given.

    `command_line` are the options of the run without the effort's. `hung`: the check did not end by itself, so an input may do so too.
    """
    environment = {name: value for name, value in os.environ.items() if name != HANGS}
    with tempfile.TemporaryDirectory() as folder:
        smallest = Path(folder) / "smallest.json"
        options = [*command_line, "--isolate-examples", f"--examples={_SHRINK_EXAMPLES}", "-p", "no:xdist"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-m", "conformance", *options, check],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_SHRINK_SECONDS,
                check=False,
                env={**environment, SMALLEST: str(smallest), **({HANGS: "1"} if hung else {})},
            )
        if not smallest.exists():
            return None
        ending, example = json.loads(smallest.read_text(encoding="utf-8"))
        return ending, example
