"""Programs of nested stream contexts, left in every way, with a model of what is current.

For: STR-5 and STR-6. A program is told which threads' and devices' state to expect; nothing is launched. Not for: the order of work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from conformance.accelerator_access import index_of, method
from conformance.checking import require
from conformance.programs.printing import PrintsAsCode

STREAMS = 4


class Ended(BaseException):
    """Raised to leave a context; no handler of the backend may take it for its own."""


class EndedInside(Exception):
    """As `Ended`, of the kind that handlers usually catch."""


@dataclass(frozen=True)
class Within:
    """`with stream(…):` a body that ends in one of three ways: normally, or by raising."""

    stream: int
    body: tuple[Any, ...]
    ending: str = "end"


@dataclass(frozen=True)
class SetDevice:
    """`set_device(…)`."""

    device: int


_ERRORS: dict[str, type[BaseException]] = {"raise Exception": EndedInside, "raise BaseException": Ended}


@dataclass(frozen=True, repr=False)
class ContextProgram(PrintsAsCode):
    """Statements in order. Stream i is on device i modulo the number of devices; devices count modulo their number."""

    body: tuple[Any, ...]

    def __repr__(self) -> str:
        return "\n" + "\n".join(_shown(self.body, "")) if self.body else "(nothing)"

    def run(self, accelerator: Any, devices: int) -> None:
        """Execute, comparing what is current with the model after every statement; everything is then as before.

        Raises:
            ClauseViolation: the first difference, with the statement.
        """
        method(accelerator, "set_device")(0)
        try:
            _Runner(accelerator, devices).run(self.body, "at the start")
        finally:
            method(accelerator, "set_device")(0)


class _Runner:
    def __init__(self, accelerator: Any, devices: int) -> None:
        self.accelerator, self.devices = accelerator, devices
        new = method(accelerator, "new_stream")
        self.streams = [new(stream % devices) for stream in range(STREAMS)]
        current = method(accelerator, "current_stream")
        self.device = 0
        self.current = [current(device) for device in range(devices)]

    def run(self, body: Sequence[Any], where: str) -> None:
        self.judge(where)
        for statement in body:
            if isinstance(statement, SetDevice):
                self.device = statement.device % self.devices
                method(self.accelerator, "set_device")(self.device)
                self.judge(f"after set_device({self.device})")
            else:
                self.enter(statement)

    def enter(self, within: Within) -> None:
        on = within.stream % self.devices
        before = self.device, list(self.current)
        how = f"with stream(s{within.stream}) on device {on}"
        error = _ERRORS.get(within.ending)
        try:
            with method(self.accelerator, "stream")(self.streams[within.stream]):
                self.device, self.current[on] = on, self.streams[within.stream]
                self.run(within.body, f"inside `{how}`")
                if error is not None:
                    raise error
            require(error is None, f"`{how}` swallowed the {error.__name__ if error else ''} of its body")
        except (Ended, EndedInside):
            pass
        self.device, self.current = before
        self.judge(f"after `{how}` was left by {'its end' if error is None else f'an {error.__name__}'}")

    def judge(self, where: str) -> None:
        found = int(method(self.accelerator, "current_device")())
        require(found == self.device, f"{where}: current_device() is {found}; due was {self.device}")
        for device, due in enumerate(self.current):
            stream = method(self.accelerator, "current_stream")(device)
            require(stream == due, f"{where}: current_stream({device}) is {stream}; due was {due}")
            on = index_of(self.accelerator, stream.device)
            require(on == device, f"{where}: current_stream({device}) is a stream of device {on}")


def _shown(body: Sequence[Any], indent: str) -> list[str]:
    lines = []
    for statement in body:
        if isinstance(statement, SetDevice):
            lines.append(f"{indent}set_device({statement.device})")
        else:
            inner = _shown(statement.body, indent + "    ")
            if statement.ending != "end" or not inner:
                inner.append(f"{indent}    {statement.ending if statement.ending != 'end' else 'pass'}")
            lines += [f"{indent}with stream(s{statement.stream}):", *inner]
    return lines


_endings = st.sampled_from(("end", *_ERRORS))
_numbers = st.integers(0, STREAMS - 1)
_bodies: st.SearchStrategy[tuple[Any, ...]] = st.recursive(
    st.lists(st.builds(SetDevice, _numbers), max_size=2).map(tuple),
    lambda bodies: st.lists(
        st.one_of(st.builds(Within, _numbers, bodies, _endings), st.builds(SetDevice, _numbers)), min_size=1, max_size=3
    ).map(tuple),
    max_leaves=6,
)
context_programs = st.builds(ContextProgram, _bodies)
