"""`--replay-program`: one stream program, run exactly again.

For: the document that a failing check prints, from the command line or a file. Not for: whole checks; each failure prints the line that
runs its check again.
"""

from __future__ import annotations

from pathlib import Path

from conformance.backend_under_test import BackendUnderTest
from conformance.errors import OptionError, ProgramError
from conformance.models.happens_before import judge
from conformance.programs.stream_check import ProgramViolation
from conformance.programs.stream_program import ScheduleChoice, StreamProgram
from conformance.stream_runs import StreamRuns
from conformance.timeline import timeline_of


def replay(backend: BackendUnderTest, text: str) -> int:
    """Run a program, print it, its timeline and the verdict; 0 where the result is right, 1 where it is wrong.

    Raises:
        OptionError: the document is wrong, or this backend cannot run the program; the message says why.
    """
    program = _fitting(backend, _read(text))
    verdict = judge(program)
    try:
        readings = StreamRuns(backend).run(program)
    except ProgramViolation as violation:
        print(violation)
        print(f"\nFAILED on {backend.name}.")
        return 1
    lines = [*program.listing(), *([f"under {program.schedule}"] if program.schedule else []), "", *timeline_of(program).text(), ""]
    lines += [f"race: {race}" for race in verdict.races]
    for name, due in verdict.values.items():
        seen = ", ".join(map(str, readings[name]))
        lines.append(f"{name}: {seen}{'' if due is not None else '  (undetermined: it depends on a race)'}")
    lines += ["", f"passed on {backend.name}: every reading that the program determines is right."]
    print("\n".join(lines))
    return 0


def _read(text: str) -> StreamProgram:
    source = "--replay-program"
    if not text.startswith(("{", "[")):
        source = f"--replay-program={text}"
        try:
            text = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            raise OptionError(
                f"{source}: cannot be read: {error.strerror}; give a program's JSON, or a file that holds it"
            ) from error
    try:
        return StreamProgram.from_json(text)
    except ProgramError as error:
        raise OptionError(f"{source}: {error}") from error


def _fitting(backend: BackendUnderTest, program: StreamProgram) -> StreamProgram:
    """The program as this backend can run it: under its schedule, or the one that the command line gives, on a simulated machine only."""
    if backend.no_device_reason is not None:
        raise OptionError(f"--replay-program: no device: {backend.no_device_reason}")
    if not backend.accelerator.supports("streams") or not backend.accelerator.supports("events"):
        raise OptionError(f"--replay-program: {backend.name} supports no streams, or no events")
    if program.devices > backend.device_count:
        raise OptionError(
            f"--replay-program: the program needs {program.devices} devices; {backend.name} has {backend.device_count}"
        )
    schedule = program.schedule if backend.is_fake else None
    if backend.is_fake and backend.given_schedule:
        schedule = ScheduleChoice(backend.given_schedule, schedule.seed if schedule else 0)
    return StreamProgram(program.streams, program.steps, program.default_streams, schedule)
