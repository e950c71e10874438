"""Running a stream program and judging what the host read.

For: the checks of STR and `--replay-program`, which print the same failure. Not for: drawing programs or finding the backend.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.errors import ClauseViolation
from conformance.models.happens_before import judge
from conformance.models.stream_orders import missing_waits
from conformance.programs.stream_executor import Readings, StreamExecutor
from conformance.programs.stream_program import StreamProgram
from conformance.timeline import Timeline, timeline_of


class ProgramViolation(ClauseViolation):
    """A program gave what its order rules out. `program` is its document, which replays; `timeline` shows it."""

    def __init__(self, message: str, program: StreamProgram, timeline: Timeline) -> None:
        super().__init__(message)
        self.program = program.to_json()
        self.timeline = timeline


@dataclass(frozen=True)
class Difference:
    """One reading that is not what was due."""

    name: str
    seen: tuple[int, ...]
    due: int

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.seen[:3])) + (", …" if len(self.seen) > 3 else "")
        return f"{self.name}: the host read {shown or 'nothing'}; due was {self.due}"


def differences(program: StreamProgram, readings: Readings) -> list[Difference]:
    """The determined readings that differ, in the order of reading."""
    due = judge(program).values
    return [
        Difference(name, readings.get(name, ()), value)
        for name, value in due.items()
        if value is not None and readings.get(name) != (value,)
    ]


def run_and_judge(executor: StreamExecutor, program: StreamProgram, again: str = "") -> Readings:
    """Run a program; what the host read. `again` is a command line to which the program's document is added, for the message.

    Raises:
        ProgramViolation: a determined reading differs, or a step raised.
    """
    try:
        readings = executor.run(program)
    except ClauseViolation as violation:
        timeline = timeline_of(program)
        raise ProgramViolation(describe(str(violation), program, timeline, again), program, timeline) from violation
    wrong = differences(program, readings)
    if not wrong:
        return readings
    explained = missing_waits(program, {name: seen[0] if len(seen) == 1 else None for name, seen in readings.items()})
    steps = [one.step for one in explained]
    timeline = timeline_of(program, steps[:1], explained[0].order if explained else ())
    raise ProgramViolation(describe(_headline(wrong, program, steps), program, timeline, again), program, timeline)


def describe(headline: str, program: StreamProgram, timeline: Timeline, again: str) -> str:
    """A failure's whole text: what is wrong, the program, its timeline, and how to run it again."""
    lines = [headline, *program.listing()]
    if program.schedule is not None:
        lines.append(f"under {program.schedule}")
    lines += ["", *timeline.text()]
    if again:
        lines += ["", f"again: {again} --replay-program='{program.to_json()}'"]
    return "\n".join(lines)


def _headline(wrong: list[Difference], program: StreamProgram, explained: list[int]) -> str:
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    if not explained:
        return f"{wrong[0]}{more}"
    step = explained[0]
    name = f"step {step}, `{program.steps[step]}`" if step < len(program.steps) else "the wait for all devices at the end"
    return f"{wrong[0]}{more}: as if {name} did not wait"
