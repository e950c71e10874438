"""Running stream programs for the checks and for `--replay-program`: once on real devices, in several orders on a simulated machine.

For: choosing the orders, the size of buffers and whether steps are lengthened. Not for: judging a run (`programs/stream_check.py`).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from conformance import efforts
from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import unsupported
from conformance.gating import denial_evidence
from conformance.programs.stream_check import ProgramViolation, run_and_judge
from conformance.programs.stream_drafts import StreamDraft
from conformance.programs.stream_executor import Lengthener, Readings, StreamExecutor
from conformance.programs.stream_program import ScheduleChoice, StreamProgram
from conformance.programs.stream_shrinking import smallest_program
from conformance.schedule_decisions import smallest_decisions

_SIMULATED_ELEMENTS = 2
_REAL_ELEMENTS = 1 << 14  # long enough that a copy takes a while
_REAL_TRIES = 5
"""Runs of a smaller program on a real device before it counts as right."""
_TYPICAL_SEEDS = 2
_USUAL_SCHEDULES = ("seeded", "directed")


class StreamRuns:
    """The programs of one check on one backend."""

    def __init__(self, backend: BackendUnderTest) -> None:
        self.backend = backend
        accelerator = backend.accelerator
        self.executor = StreamExecutor(
            accelerator, _SIMULATED_ELEMENTS if backend.is_fake else _REAL_ELEMENTS, Lengthener(accelerator)
        )
        self.has_pinned_memory = bool(method(accelerator, "supports")("pinned_memory"))

    def program(self, draft: StreamDraft) -> StreamProgram:
        """The program of a draft for this backend's devices and host memory."""
        return draft.program(self.backend.device_count, pinned=self.has_pinned_memory)

    def judge(self, program: StreamProgram | StreamDraft, seed: int) -> None:
        """Run a program in every order that the run asks for and judge each.

        Raises:
            ProgramViolation: the first run that is wrong.
        """
        for capability in ("streams", "events"):
            if not method(self.backend.accelerator, "supports")(capability):
                unsupported(f"{capability}: {denial_evidence(self.backend, capability)}")
        if isinstance(program, StreamDraft):
            program = self.program(program)
        for schedule in self.schedules(seed):
            try:
                self.run(replace(program, schedule=schedule))
            except ProgramViolation as violation:
                if efforts.shrinks():
                    violation.smallest = functools.partial(smallest_program, violation.ran, violation, self._failure)
                raise

    def judge_typical(self, programs: Sequence[StreamProgram]) -> None:
        """Judge programs that every run takes, each from several seeds; from seed 0 `directed` reverses all that it can.

        Raises:
            ProgramViolation: the first run that is wrong.
        """
        for program in programs:
            for seed in range(_TYPICAL_SEEDS if self.backend.is_fake else 1):
                self.judge(program, seed)

    def _failure(self, program: StreamProgram) -> ProgramViolation | None:
        """How a program fails, in the order of its schedule or another; None where it does not."""
        schedule = program.schedule
        tries: list[ScheduleChoice | None] = [schedule] * (1 if self.backend.is_fake else _REAL_TRIES)
        if schedule is not None and not self.backend.given_schedule:
            tries += [other for other in self.schedules(schedule.seed) if other != schedule]
        for one in tries:
            try:
                self.run(replace(program, schedule=one))
            except ProgramViolation as violation:
                return violation
        return None

    def schedules(self, seed: int) -> list[ScheduleChoice | None]:
        """The orders to run a program in; one None on real devices."""
        if not self.backend.is_fake:
            return [None]
        given = self.backend.given_schedule
        return [ScheduleChoice(name, seed) for name in ((given,) if given else _USUAL_SCHEDULES)]

    def run(self, program: StreamProgram) -> Readings:
        """Run a program once, in the order of its schedule, and judge it; what the host read.

        Raises:
            ProgramViolation: the result is wrong.
        """
        if program.schedule is not None:
            self.backend.restart(program.schedule.name, program.schedule.seed)
        try:
            return run_and_judge(self.executor, program, self.backend.command)
        except ProgramViolation as violation:
            if program.schedule is not None and program.schedule.name != "eager" and efforts.shrinks():
                violation.decisions = lambda: self._decisions(program)
            raise

    def _decisions(self, program: StreamProgram) -> list[str]:
        """The few decisions of the scheduler that make a program fail, in words."""

        def fails() -> bool:
            try:
                run_and_judge(self.executor, program)
            except ProgramViolation:
                return True
            return False

        seed = program.schedule.seed if program.schedule is not None else 0
        decisions = smallest_decisions(self.backend, fails, seed, _names_of_streams(program))
        if decisions is None:
            return []
        if not decisions:
            return ["it fails in the order of issue too"]
        return [
            "it takes these decisions of the scheduler, all other work in the order of issue:",
            *(f"  {one}" for one in decisions),
        ]


def _names_of_streams(program: StreamProgram) -> dict[tuple[int, int], str]:
    """What a program calls its streams, by device and by the number that a restarted machine gives each new one."""
    names: dict[tuple[int, int], str] = {}
    made: Counter[int] = Counter()
    for number, device in enumerate(program.streams):
        if number not in program.default_streams:
            made[device] += 1
        names[device, 0 if number in program.default_streams else made[device]] = f"s{number}"
    return names
