"""Programs that select devices, and the model of what is current after each statement.

For: DEV-1 to DEV-5 and DEV-8 as one language: setting, refused settings, questions in every form, contexts with exceptions in
them, and threads. A program is a value; it prints as code and runs on any backend. Not for: tensors and streams."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from conformance.accelerator_access import device_type_of, index_of, method
from conformance.checking import expect_refusal, require
from conformance.programs.device_forms import DeviceForm, IllegalForm, forms, illegal_forms, indexed_forms, settable_forms
from conformance.programs.printing import PrintsAsCode

REFUSALS = (ValueError, RuntimeError, TypeError)
_THREAD_LIMIT = 30.0


class Interrupt(Exception):
    """What a program raises inside a context."""


@dataclass(frozen=True)
class SetDevice:
    """`set_device(form)`, which must succeed."""

    form: DeviceForm

    def lines(self) -> list[str]:
        return [f"set_device({self.form!r})"]


@dataclass(frozen=True)
class RefusedSet:
    """`set_device(form)`, or entering `device_context(form)`, which must be refused and change nothing."""

    form: DeviceForm | IllegalForm
    in_context: bool = False

    def lines(self) -> list[str]:
        return [
            f"with device_context({self.form!r}): pass  # refused" if self.in_context else f"set_device({self.form!r})  # refused"
        ]


@dataclass(frozen=True)
class Ask:
    """`device(form)` and `device_name(form)`, which must agree."""

    form: DeviceForm

    def lines(self) -> list[str]:
        return [f"device({self.form!r}); device_name({self.form!r})"]


@dataclass(frozen=True)
class Context:
    """`with device_context(form)` around a body; `raises` lets an exception out at the body's end."""

    form: DeviceForm
    body: tuple[Any, ...]
    raises: bool = False

    def lines(self) -> list[str]:
        return [f"with device_context({self.form!r}):", *_indented(self.body), *(["    raise Interrupt"] if self.raises else [])]


@dataclass(frozen=True)
class InThread:
    """The body in a new thread, which sets its own device first, while this one waits."""

    form: DeviceForm
    body: tuple[Any, ...]

    def lines(self) -> list[str]:
        return ["in a new thread:", f"    set_device({self.form!r})", *_indented(self.body)]


@dataclass(frozen=True, repr=False)
class DeviceProgram(PrintsAsCode):
    """Statements in order. Device numbers stand for themselves modulo the number of devices."""

    statements: tuple[Any, ...]

    def __repr__(self) -> str:
        return "\n" + "\n".join(["set_device(0)", *(line for statement in self.statements for line in statement.lines())])

    def run(self, accelerator: Any) -> None:
        """Execute on a backend, comparing with the model after each statement.

        Raises:
            ClauseViolation: the first difference, with the statement.
        """
        runner = _Runner(accelerator)
        method(accelerator, "set_device")(0)
        runner.run(self.statements, 0)
        method(accelerator, "set_device")(0)


class _Runner:
    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator
        self.device_type = device_type_of(accelerator)
        self.count = int(method(accelerator, "device_count")())

    def run(self, statements: Sequence[Any], current: int) -> int:
        """Run statements where `current` is current; return what is current at the end."""
        for statement in statements:
            current = getattr(self, f"_{type(statement).__name__}")(statement, current)
            self.require_current(current, statement.lines()[0])
        return current

    def require_current(self, due: int, after: str) -> None:
        actual = method(self.accelerator, "current_device")()
        require(
            type(actual) is int and actual == due,
            f"after `{after}`, current_device() is {actual!r}; due was {due} (of {self.count} devices)",
        )

    def value(self, form: DeviceForm | IllegalForm) -> Any:
        return form.value(self.device_type, self.count)

    def _SetDevice(self, statement: SetDevice, current: int) -> int:  # noqa: N802 - named after the statement
        method(self.accelerator, "set_device")(self.value(statement.form))
        return statement.form.local_index(current, self.count)

    def _RefusedSet(self, statement: RefusedSet, current: int) -> int:  # noqa: N802
        value = self.value(statement.form)

        def enter_context(form: Any) -> None:
            with method(self.accelerator, "device_context")(form):
                pass

        call = enter_context if statement.in_context else method(self.accelerator, "set_device")
        expect_refusal(call, value, errors=REFUSALS)
        return current

    def _Ask(self, statement: Ask, current: int) -> int:  # noqa: N802
        due = statement.form.local_index(current, self.count)
        value = self.value(statement.form)
        answer = index_of(self.accelerator, method(self.accelerator, "device")(value))
        require(answer == due, f"device({value!r}) is device {answer} while {current} is current; due was {due}")
        name = method(self.accelerator, "device_name")(value)
        named = index_of(self.accelerator, method(self.accelerator, "device")(name))
        require(named == due, f"device_name({value!r}) is {name!r}, device {named}, while {current} is current; due was {due}")
        return current

    def _Context(self, statement: Context, current: int) -> int:  # noqa: N802
        try:
            with method(self.accelerator, "device_context")(self.value(statement.form)):
                inside = statement.form.local_index(current, self.count)
                self.require_current(inside, statement.lines()[0])
                self.run(statement.body, inside)
                if statement.raises:
                    raise Interrupt
        except Interrupt:
            require(statement.raises, "an exception came out of a context whose body raised none")
        else:
            require(not statement.raises, "the context swallowed the exception of its body")
        return current

    def _InThread(self, statement: InThread, current: int) -> int:  # noqa: N802
        failures: list[BaseException] = []

        def body() -> None:
            try:
                self.run((SetDevice(statement.form), *statement.body), 0)
            except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
                failures.append(error)

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        thread.join(_THREAD_LIMIT)
        require(not thread.is_alive(), f"a thread that sets its device did not end within {_THREAD_LIMIT:g} s")
        if failures:
            raise failures[0]
        return current


def _indented(body: Sequence[Any]) -> list[str]:
    lines = [f"    {line}" for statement in body for line in statement.lines()]
    return lines or ["    pass"]


_set = st.builds(SetDevice, settable_forms)
_ask = st.builds(Ask, forms)
_refused = st.builds(RefusedSet, illegal_forms | st.just(DeviceForm("None")))
_refused_context = st.builds(RefusedSet, illegal_forms, st.just(True))


def _bodies(statements: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(statements, max_size=3).map(tuple)


def _programs(statements: st.SearchStrategy[Any]) -> st.SearchStrategy[DeviceProgram]:
    return st.builds(DeviceProgram, st.lists(statements, min_size=1, max_size=6).map(tuple))


set_programs = _programs(_set | _ask | _refused)
"""Programs that set, ask and are refused."""

_nested = st.recursive(
    _set | _ask | _refused_context | _refused,
    lambda inner: st.builds(Context, settable_forms, _bodies(inner), st.booleans()),
    max_leaves=6,
)
_contexts = st.builds(Context, settable_forms, _bodies(_nested), st.booleans())
context_programs = _programs(_contexts | _set)
"""Programs in which contexts nest, raise and have their device changed."""

thread_programs = _programs(st.builds(InThread, indexed_forms, _bodies(_set | _ask)) | _set | _contexts)
"""Programs with threads that set a device of their own."""
