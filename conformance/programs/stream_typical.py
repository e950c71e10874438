"""Short stream programs that every run takes first, since random ones may miss what they ask for.

For: STR-6, STR-9 and STR-11, each program for a mistake that vendors have made. Not for: drawing programs (`stream_drafts.py`). Every
program is race-free.
"""

from __future__ import annotations

from conformance.programs.stream_program import StreamProgram
from conformance.programs.stream_steps import (
    Allocate,
    AllocateHost,
    Copy,
    HostRead,
    HostWrite,
    Kernel,
    Record,
    SetDevice,
    Step,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    WaitEvent,
    WaitStream,
)


def waits_for_another_devices_stream(devices: int, *, pinned: bool) -> list[StreamProgram]:
    """A busy stream is waited for while an idle one is current, on another device where there are two (STR-6)."""
    before = (
        AllocateHost("p", 1, pinned),
        Allocate("a", 1, 2),
        SynchronizeDevice(devices - 1),
        SetDevice(devices - 1),
        Kernel(1, "a", 3, slow=True),
        Copy(1, "a", "p"),
        SetDevice(0),
    )
    return [StreamProgram((0, devices - 1), (*before, SynchronizeStream(1, poll), HostRead("p"))) for poll in (True, False)]


def copies_that_the_host_waits_for(*, pinned: bool) -> list[StreamProgram]:
    """A copy with the host, in both directions, blocking or waited for in each way that there is (STR-9)."""
    before = (AllocateHost("p", 9, pinned), Allocate("a", 1, 2), Kernel(1, "a", 3, keep=True, slow=True))
    waits: list[tuple[Step, ...]] = [()]
    for poll in (False, True):
        waits += [(Record("e", 1), SynchronizeEvent("e", poll)), (SynchronizeStream(1, poll),)]
    waits.append((SynchronizeDevice(0),))
    programs = []
    for wait in waits:
        blocking = not wait
        programs += [
            StreamProgram((0, 0), (*before, Copy(1, "a", "p", blocking), *wait, HostRead("p"))),
            StreamProgram((0, 0), (*before, Copy(1, "p", "a", blocking), *wait, HostWrite("p", 4))),
        ]
    return programs


def waits_between_streams() -> list[StreamProgram]:
    """Waits of a stream that has much to do already, and two waits for one stream at different times (STR-11)."""
    busy = tuple(Kernel(1, "b", 3 + number, slow=True) for number in range(4))
    produced = (Kernel(0, "a", 20, slow=True), Record("e", 0), WaitEvent(1, "e"))
    buffers = tuple(Allocate(name, stream, 1) for name, stream in (("a", 0), ("b", 1), ("c", 1)))
    consumed = (Kernel(1, "c", 30, read="a"), SynchronizeStream(1), HostRead("c", 1))
    twice = (
        Allocate("a", 0, 1),
        Allocate("b", 0, 2),
        Allocate("c", 1, 3),
        Allocate("d", 2, 4),
        Kernel(0, "a", 20, slow=True),
        WaitStream(1, 0),
        Kernel(1, "c", 30, read="a"),
        Kernel(0, "b", 40, slow=True),
        WaitStream(2, 0),
        Kernel(2, "d", 50, read="b"),
        SynchronizeStream(1),
        SynchronizeStream(2),
        HostRead("c", 1),
        HostRead("d", 2),
    )
    return [StreamProgram((0, 0), (*buffers, *busy, *produced, *consumed)), StreamProgram((0, 0, 0), twice)]
