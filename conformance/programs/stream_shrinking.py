"""Making a failing stream program smaller, step by step.

For: the smallest program that still fails, in few runs, on simulated and real devices alike. Hypothesis, which drew the program, knows the
draft only; here steps themselves are left out, streams are merged and flags cleared, as long as the program stays legal and as race-free as
it was. Not for: explaining the failure (`stream_check.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

from conformance.errors import ProgramError
from conformance.models.happens_before import judge
from conformance.programs.stream_program import StreamProgram

MOST_RUNS = 400
Failure = TypeVar("Failure")


def smallest_program(program: StreamProgram, failure: Failure, fails: Callable[[StreamProgram], Failure | None]) -> Failure:
    """The failure of the smallest program found. `failure` is that of `program`; `fails` runs another and gives its failure, or None."""
    search = _Search(program, failure, fails)
    before = None
    while before != search.program and search.runs < MOST_RUNS:
        before = search.program
        search.leave_out_steps()
        search.merge_streams()
        search.clear_flags()
        search.leave_out_pairs()
    return search.failure


class _Search(Generic[Failure]):
    def __init__(self, program: StreamProgram, failure: Failure, fails: Callable[[StreamProgram], Failure | None]) -> None:
        self.program, self.failure, self.runs = program, failure, 0
        self._fails = fails
        self._may_race = bool(judge(program).races)
        self._tried: set[StreamProgram] = set()

    def attempt(self, candidate: StreamProgram) -> bool:
        """Go on with a simpler program if it is legal and fails."""
        known = replace(candidate, schedule=None)
        if self.runs >= MOST_RUNS or known in self._tried or not _is_legal(candidate, self._may_race):
            return False
        self._tried.add(known)
        self.runs += 1
        found = self._fails(candidate)
        if found is None:
            return False
        self.program, self.failure = candidate, found
        return True

    def leave_out_steps(self) -> None:
        """Halves, then quarters, …, then single steps; the last ones first, since earlier ones serve them."""
        size = max(1, len(self.program.steps) // 2)
        while size:
            start = len(self.program.steps) - size
            while start >= 0:
                steps = self.program.steps
                self.attempt(replace(self.program, steps=steps[:start] + steps[start + size :]))
                start -= size
            size //= 2

    def leave_out_pairs(self) -> None:
        """Two steps that need each other, such as a use and the wait before it."""
        for first in range(len(self.program.steps) - 1, -1, -1):
            for second in range(len(self.program.steps) - 1, first + 1, -1):
                steps = self.program.steps
                if self.attempt(replace(self.program, steps=steps[:first] + steps[first + 1 : second] + steps[second + 1 :])):
                    break

    def merge_streams(self) -> None:
        """Fewer streams, and none that is its device's default."""
        for stream in range(len(self.program.streams) - 1, -1, -1):
            for other in range(stream):
                if self.program.streams[other] == self.program.streams[stream]:
                    self.attempt(_renumbered(self.program, {stream: other}))
            self.attempt(_without_stream(self.program, stream))
        self.attempt(replace(self.program, default_streams=()))

    def clear_flags(self) -> None:
        """No step slow, blocking, polling or in pinned memory that need not be."""
        for at in range(len(self.program.steps)):
            step: Any = self.program.steps[at]
            for field in fields(step):
                if field.type == "bool" and getattr(step, field.name) and field.name != "keep":
                    simpler = replace(step, **{field.name: False})
                    self.attempt(replace(self.program, steps=(*self.program.steps[:at], simpler, *self.program.steps[at + 1 :])))


def _is_legal(program: StreamProgram, may_race: bool) -> bool:
    try:
        StreamProgram.from_document(program.to_document())
    except ProgramError:
        return False
    return may_race or not judge(program).races


def _renumbered(program: StreamProgram, places: dict[int, int]) -> StreamProgram:
    steps: list[Any] = []
    step: Any
    for step in program.steps:
        changes = {name: places[getattr(step, name)] for name in ("stream", "other") if getattr(step, name, None) in places}
        steps.append(replace(step, **changes) if changes else step)
    return replace(program, steps=tuple(steps))


def _without_stream(program: StreamProgram, stream: int) -> StreamProgram:
    """Without a stream that no step uses."""
    used = {getattr(step, name, None) for step in program.steps for name in ("stream", "other")}
    if stream in used or len(program.streams) == 1:
        return replace(program, streams=())  # no legal program, so nobody runs it
    later = {number: number - 1 for number in range(stream + 1, len(program.streams))}
    defaults = tuple(later.get(number, number) for number in program.default_streams if number != stream)
    return replace(
        _renumbered(program, later),
        streams=program.streams[:stream] + program.streams[stream + 1 :],
        default_streams=defaults,
    )
