"""Drawing stream programs in which freed memory could be used again too early.

For: STR-12. In each turn a buffer is freed while work on it may still be pending, and new buffers of the same size take memory on the
same stream and on others. Not for: other orders (`stream_drafts.py`). Every program is race-free; all its streams are on one device.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from conformance.programs.printing import PrintsAsCode
from conformance.programs.stream_program import StreamProgram
from conformance.programs.stream_steps import (
    Allocate,
    Free,
    Kernel,
    Record,
    RecordStream,
    Step,
    SynchronizeEvent,
    SynchronizeStream,
    WaitStream,
)

STREAMS = 3
MAX_TURNS = 3
EVENT = -1


@dataclass(frozen=True)
class Turn:
    """One buffer's life. It is made on stream `owner` and read there, and on the streams `users`, which are recorded: each early (before
    its last kernel is issued) or late. When it is freed, the host may wait for a stream (`waits_for`), or for what the first early user
    had before its last kernel (EVENT), and then a buffer is made on each of the streams `takers`. `writes`: the owner writes the buffer
    once more at last, so that late work would show in a taker's buffer."""

    owner: int
    users: tuple[int, ...] = ()
    early: bool = False
    waits_for: int | None = None
    takers: tuple[int, ...] = (0,)
    writes: bool = False

    def steps(self, number: int) -> list[Step]:
        """The turn's steps; buffers carry its number."""
        buffer, value = f"x{number}", 100 * number + 1
        users = sorted({user for user in self.users if user != self.owner})
        steps: list[Step] = [Allocate(buffer, self.owner, value)]
        for user in users:
            result = f"y{number}_{user}"
            steps += [WaitStream(user, self.owner), Allocate(result, user, 0)]
            used = Kernel(user, result, value + 50, read=buffer, slow=True)
            if self.early:
                steps += [Record(f"e{user}", user), RecordStream(buffer, user), used]
            else:
                steps += [used, RecordStream(buffer, user)]
        if self.writes and not users:
            steps.append(Kernel(self.owner, buffer, value + 7, slow=True))
        else:
            kept = f"k{number}"
            steps += [Allocate(kept, self.owner, 0), Kernel(self.owner, kept, value + 20, read=buffer, slow=True)]
        steps.append(Free(buffer))
        if self.waits_for == EVENT:
            steps += [SynchronizeEvent(f"e{users[0]}")] if self.early and users else []
        elif self.waits_for is not None:
            steps.append(SynchronizeStream(self.waits_for))
        steps += [Allocate(f"z{number}_{taker}", taker, value + 30 + taker) for taker in self.takers]
        return steps


@dataclass(frozen=True, repr=False)
class ReuseDraft(PrintsAsCode):
    """Turns one after the other, on a device that counts modulo the number of devices."""

    turns: tuple[Turn, ...]
    device: int

    def __repr__(self) -> str:
        return repr(self.program(1))

    def program(self, devices: int) -> StreamProgram:
        """The program for a backend with so many devices."""
        steps = [step for number, turn in enumerate(self.turns) for step in turn.steps(number)]
        return StreamProgram((self.device % devices,) * STREAMS, tuple(steps))


_streams = st.integers(0, STREAMS - 1)
_turns = st.builds(
    Turn,
    owner=_streams,
    users=st.lists(_streams, max_size=2, unique=True).map(tuple),
    early=st.booleans(),
    waits_for=st.sampled_from((None, 0, 1, 2, EVENT)),
    takers=st.lists(_streams, min_size=1, max_size=2, unique=True).map(tuple),
    writes=st.booleans(),
)
reuse_drafts = st.builds(ReuseDraft, st.lists(_turns, min_size=1, max_size=MAX_TURNS).map(tuple), st.integers(0, 1))
TYPICAL = tuple(
    ReuseDraft(turns, 0)
    for turns in (
        (Turn(0, (1,)),),
        (Turn(0, (1, 2), waits_for=2),),
        (Turn(0, (1, 2), waits_for=1),),
        (Turn(0, (1,), waits_for=0),),
        (Turn(0, (1,), early=True, waits_for=EVENT),),
        (Turn(1, takers=(0, 2), writes=True), Turn(0, takers=(1,))),
    )
)
"""Programs that every run tries first: one user; two, of which the host waits for one; the host waits for the owner only, or for less
than what was issued; and takers on other streams than the owner's."""
