"""Running a stream program and judging what the host read.

For: the checks of STR and `--replay-program`, which print the same failure. Not for: drawing programs or finding the backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from conformance.errors import ClauseViolation
from conformance.models.happens_before import judge
from conformance.models.stream_orders import Explanation, missing_waits
from conformance.programs.stream_executor import Readings, StreamExecutor
from conformance.programs.stream_program import StreamProgram
from conformance.timeline import Timeline, timeline_of


class ProgramViolation(ClauseViolation):
    """A program gave what its order rules out.

    What it says is made when it is first asked for, since making the program small and finding out what must have happened take longer
    than many runs. `ran` is the program that failed. `smallest` and `decisions` are asked once, where they are set: for the violation of
    a smaller program, and for further lines.
    """

    def __init__(self, program: StreamProgram, headline: str, readings: Readings, again: str) -> None:
        super().__init__(headline)
        self.ran = program
        self.smallest: Callable[[], ProgramViolation] | None = None
        self.decisions: Callable[[], list[str]] | None = None
        self._headline, self._readings, self._again = headline, readings, again

    def __str__(self) -> str:
        return self._final._text

    @property
    def program(self) -> str:
        """The document of the smallest program, which replays."""
        return self._final.ran.to_json()

    @property
    def timeline(self) -> Timeline:
        """The smallest program as a picture, with the wait that must have had no effect."""
        return self._final._timeline

    @cached_property
    def _final(self) -> ProgramViolation:
        return self if self.smallest is None else self.smallest()

    @cached_property
    def _timeline(self) -> Timeline:
        steps = [one.step for one in self._explained]
        return timeline_of(self.ran, steps[:1], self._explained[0].order if self._explained else ())

    @cached_property
    def _explained(self) -> list[Explanation]:
        readings = {name: seen[0] if len(seen) == 1 else None for name, seen in self._readings.items()}
        return missing_waits(self.ran, readings) if readings else []

    @cached_property
    def _text(self) -> str:
        program, explained = self.ran, self._explained
        headline = self._headline
        if explained:
            step = explained[0].step
            name = f"step {step}, `{program.steps[step]}`" if step < len(program.steps) else "the wait for all devices at the end"
            headline = f"{headline}: as if {name} did not wait"
        lines = [headline, *program.listing()]
        if program.schedule is not None:
            lines.append(f"under {program.schedule}")
        lines += ["", *self._timeline.text(), *(self.decisions() if self.decisions is not None else [])]
        lines += ["", f"again: {self._again} --replay-program='{program.to_json()}'"]
        return "\n".join(lines)


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
        raise ProgramViolation(program, str(violation), {}, again) from violation
    wrong = differences(program, readings)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise ProgramViolation(program, f"{wrong[0]}{more}", readings, again)
    return readings
