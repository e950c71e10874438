"""Running stream programs for the checks and for `--replay-program`: once on real devices, in several orders on a simulated machine.

For: choosing the orders, the size of buffers and whether steps are lengthened. Not for: judging a run (`programs/stream_check.py`).
"""

from __future__ import annotations

from dataclasses import replace

from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import unsupported
from conformance.gating import denial_evidence
from conformance.programs.stream_check import run_and_judge
from conformance.programs.stream_drafts import StreamDraft
from conformance.programs.stream_executor import Lengthener, Readings, StreamExecutor
from conformance.programs.stream_program import ScheduleChoice, StreamProgram

_SIMULATED_ELEMENTS = 2
_REAL_ELEMENTS = 1 << 14  # long enough that a copy takes a while
_USUAL_SCHEDULES = ("eager",)


class StreamRuns:
    """The programs of one check on one backend."""

    def __init__(self, backend: BackendUnderTest) -> None:
        self.backend = backend
        accelerator = backend.accelerator
        self.executor = StreamExecutor(
            accelerator, _SIMULATED_ELEMENTS if backend.is_fake else _REAL_ELEMENTS, Lengthener(accelerator)
        )
        self._pinned = bool(method(accelerator, "supports")("pinned_memory"))

    def program(self, draft: StreamDraft) -> StreamProgram:
        """The program of a draft for this backend's devices and host memory."""
        return draft.program(self.backend.device_count, pinned=self._pinned)

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
            self.run(replace(program, schedule=schedule))

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
        return run_and_judge(self.executor, program, self.backend.command)
