"""What a check asks of ranks, however they were started.

For: the one interface, `RankPool`, and how a rank's part in an example ends. Not for: starting ranks (`local_pool.py`) or being one
(`rank_main.py`).
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.ranks.errors import RankFailure
from conformance.shortening import beginning

VALUE, RAISED, DIED, STALLED = "value", "raised", "died", "stalled"
USUAL_GRACE = 9.0
"""Seconds that the others may go on after one rank failed: a little more than a collective waits for it."""
_VALUE_LIMIT = 1000


@dataclass(frozen=True)
class RankEnd:
    """How one rank's part in an example ended.

    `how` is `value`, `raised`, `died` or `stalled`. `text` is the traceback, or the signal or status; `error` the exception's class and
    `message` what it says. `operation` is what the rank said that it was about to do, `stack` its Python stack where it stalled, `log` its
    last lines.
    """

    rank: int
    how: str
    value: Any = None
    text: str = ""
    error: str = ""
    message: str = ""
    operation: str = ""
    stack: str = ""
    log: str = ""

    @property
    def headline(self) -> str:
        """How it ended, in one line."""
        where = f" in {self.operation}" if self.operation else ""
        why = f"{self.error}: {self.message}" if self.how == RAISED else self.text
        return f"rank {self.rank} {self.how}{where}" + (f": {why.strip().splitlines()[0]}" if why.strip() else "")

    def described(self) -> str:
        """For a person: the rank, how it ended and where it was."""
        if self.how == VALUE:
            return f"rank {self.rank}: ended well with {beginning(repr(self.value), _VALUE_LIMIT)}"
        parts = [f"rank {self.rank}: {self.how}" + (f" in {self.operation}" if self.operation else "")]
        for title, text in (("", self.text), ("stack", self.stack), ("last lines", self.log)):
            if text.strip():
                lines = "\n".join(f"    {line}" for line in text.strip().splitlines())
                parts.append(f"  {title}:\n{lines}" if title else lines)
        return "\n".join(parts)


class RankPool(abc.ABC):
    """A fixed number of ranks that run one program after the other.

    A program is a module-level function, or `"module:function"`, called on every rank as `function(context, **arguments)` with a
    `conformance.ranks.rank_main.RankContext`; arguments and values are JSON. After an example that failed, the next one gets new ranks.
    """

    size: int

    @property
    def lost(self) -> str:
        """Why no example can run any more, in words; empty while the pool can start new ranks."""
        return ""

    @abc.abstractmethod
    def attempt(
        self, program: str | Callable[..., Any], *, timeout: float = 30.0, grace: float = USUAL_GRACE, **arguments: Any
    ) -> list[RankEnd]:
        """Run a program and say how it ended on each rank, in rank order; for examples in which ranks are meant to fail.

        A rank that has not answered after `timeout` seconds, or `grace` seconds after another one failed, has stalled.
        """

    def run(self, program: str | Callable[..., Any], *, timeout: float = 30.0, **arguments: Any) -> list[Any]:
        """The values of all ranks, in rank order.

        Raises:
            RankFailure: a rank raised, died or stalled.
        """
        ends = self.attempt(program, timeout=timeout, **arguments)
        if any(end.how != VALUE for end in ends):
            raise RankFailure(program_path(program), ends)
        return [end.value for end in ends]

    def warm_up(self) -> None:  # noqa: B027 - a pool may have nothing to prepare
        """Begin to start the ranks without waiting for them."""

    @abc.abstractmethod
    def close(self) -> None:
        """End every rank; nothing is left behind. The pool can be used again, with new ranks."""


def program_path(program: str | Callable[..., Any]) -> str:
    """`"module:function"` of a program."""
    return program if isinstance(program, str) else f"{program.__module__}:{program.__qualname__}"
