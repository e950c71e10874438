"""Each example of a property in a forked child, so that one that ends its process is an ordinary failure and can be made smaller.

For: the second look at a check that took its worker down (`isolation.py`). Nothing in the parent may touch the device's runtime. Not for
whole runs: every child opens the device again.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import hypothesis.errors

from conformance import isolation
from conformance.errors import ChildDied, ChildFailed, ChildTimeout

EXAMPLE_TIMEOUT = 10.0
"""Seconds after which an example counts as hanging."""


@contextmanager
def forking(test: Callable[..., Any]) -> Iterator[None]:
    """While the block runs, each example of a property runs in a child; nothing for tests without Hypothesis."""
    handle = getattr(test, "hypothesis", None)
    if handle is None:
        yield
        return
    original = handle.inner_test

    smallest = _Smallest()

    @functools.wraps(original)
    def forked(*arguments: Any, **keywords: Any) -> None:
        try:
            run_in_child(functools.partial(original, *arguments, **keywords))
        except (ChildDied, ChildTimeout) as end:
            if isinstance(end, ChildTimeout) and isolation.HANGS not in os.environ:
                hypothesis.reject()
            smallest.offer(str(end), isolation.shown_example(keywords))
            raise

    handle.inner_test = forked
    try:
        yield
    finally:
        handle.inner_test = original


class _Smallest:
    """The smallest example so far that ended its process, kept in the file that `SMALLEST` names: the search may be cut short."""

    def __init__(self) -> None:
        self._path = os.environ.get(isolation.SMALLEST, "")
        self._length: float = float("inf")

    def offer(self, ending: str, example: str) -> None:
        """Keep an example that is shorter than the one before."""
        if self._path and len(example) <= self._length:
            self._length = len(example)
            Path(self._path).write_text(json.dumps([ending, example]), encoding="utf-8")


def run_in_child(example: Callable[[], Any], timeout: float = EXAMPLE_TIMEOUT) -> None:
    """Run one example in a forked child and end as it did.

    Raises:
        ChildDied: the child ended by a signal or without an answer. ChildTimeout: it hung and was ended. ChildFailed: it raised.
        hypothesis.errors.UnsatisfiedAssumption: the example did not fit.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _live(example, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb", buffering=0) as answers:
        data, finished = _read(answers.fileno(), timeout)
    if not finished:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if not finished:
        raise ChildTimeout(f"the example did not end within {timeout:g} s")
    if not data:
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
        raise ChildDied(f"the example ended its process with {how}")
    answer = json.loads(data)
    if answer["type"] == "UnsatisfiedAssumption":
        hypothesis.reject()
    if answer["type"]:
        raise ChildFailed(answer["text"], answer["type"])


def _live(example: Callable[[], Any], write_end: int) -> NoReturn:
    """The child's whole life."""
    answer = {"type": "", "text": ""}
    try:
        example()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the example's answer
        answer = {"type": type(error).__name__, "text": f"{type(error).__name__}: {error}"}
    try:
        os.write(write_end, json.dumps(answer).encode()[: select.PIPE_BUF])
    finally:
        os._exit(0)


def _read(descriptor: int, timeout: float) -> tuple[bytes, bool]:
    """What the child wrote, and whether it ended in time."""
    ready, _, _ = select.select([descriptor], [], [], timeout)
    return (os.read(descriptor, select.PIPE_BUF), True) if ready else (b"", False)
