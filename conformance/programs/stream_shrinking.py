"""Making a failing stream program smaller, step by step.

For: the smallest program that still fails, in few runs, on simulated and real devices alike. Hypothesis, which drew the program, knows the
draft only; here steps themselves are left out, streams are merged and flags cleared, as long as the program stays legal and as race-free as
it was. Not for: explaining the failure (`stream_check.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import TypeVar

from conformance.errors import ProgramError
from conformance.models.happens_before import judge
from conformance.programs.stream_program import StreamProgram
from conformance.programs.stream_steps import Step

MOST_RUNS = 400
Failure = TypeVar("Failure")


def smallest_program(program: StreamProgram, failure: Failure, fails: Callable[[StreamProgram], Failure | None]) -> Failure:
    """The failure of the smallest program found. `failure` is that of `program`; `fails` runs another and gives its failure, or None."""
    may_race = bool(judge(program).races)
    runs = 0
    progress = True
    while progress and runs < MOST_RUNS:
        progress = False
        for candidate in _smaller(program):
            if runs >= MOST_RUNS:
                break
            if not _is_legal(candidate, may_race):
                continue
            runs += 1
            found = fails(candidate)
            if found is not None:
                program, failure, progress = candidate, found, True
                break
    return failure


def _is_legal(program: StreamProgram, may_race: bool) -> bool:
    try:
        StreamProgram.from_document(program.to_document())
    except ProgramError:
        return False
    return may_race or not judge(program).races


def _smaller(program: StreamProgram) -> Iterator[StreamProgram]:
    """Simpler programs, those with the most left out first."""
    count = len(program.steps)
    size = count // 2
    while size:
        for start in range(count - size, -1, -1 if size < 3 else -size):
            yield replace(program, steps=program.steps[:start] + program.steps[start + size :])
        size //= 2
    for first in range(count):
        for second in range(first + 2, count):
            steps = program.steps
            yield replace(program, steps=steps[:first] + steps[first + 1 : second] + steps[second + 1 :])
    for stream in range(len(program.streams) - 1, -1, -1):
        for other in range(stream):
            if program.streams[other] == program.streams[stream]:
                yield _renumbered(program, {stream: other})
        yield _without_stream(program, stream)
    if program.default_streams:
        yield replace(program, default_streams=())
    for at, step in enumerate(program.steps):
        for field in fields(step):
            if field.type == "bool" and getattr(step, field.name) and field.name != "keep":
                simpler: Step = replace(step, **{field.name: False})
                yield replace(program, steps=(*program.steps[:at], simpler, *program.steps[at + 1 :]))


def _renumbered(program: StreamProgram, places: dict[int, int]) -> StreamProgram:
    steps = []
    for step in program.steps:
        changes = {
            name: places[getattr(step, name)] for name in ("stream", "other") if getattr(step, name, None) in places
        }
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
