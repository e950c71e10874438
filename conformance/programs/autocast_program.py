"""Programs of nested autocast contexts, exceptions and matrix products, against `models/autocast.py`.

For: AMP-1. Not for: dtypes that a backend refuses (AMP-2)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from conformance.accelerator_access import device_type_of, method
from conformance.checking import require
from conformance.models.autocast import AutocastModel
from conformance.programs.printing import PrintsAsCode

_CAPABILITIES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(frozen=True)
class Enter:
    """`autocast(dtype)`; None leaves the dtype out, `enabled=False` turns it off."""

    dtype: torch.dtype | None
    enabled: bool = True

    def __str__(self) -> str:
        dtype = "" if self.dtype is None else f"dtype={self.dtype}"
        return f"with autocast({dtype if self.enabled else 'enabled=False'}):"


@dataclass(frozen=True)
class Leave:
    """The end of the innermost context; `raises`: by an exception, which is caught right outside."""

    raises: bool

    def __str__(self) -> str:
        return "raise, caught outside the innermost context" if self.raises else "the end of the innermost context"


@dataclass(frozen=True)
class Product:
    """A matrix product of inputs of one dtype."""

    kind: str
    inputs: torch.dtype

    def __str__(self) -> str:
        return f"{self.kind} of {self.inputs}"


class Interrupt(Exception):
    """What a program raises inside a context."""


_PRODUCTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a @ b": lambda a: a @ a,
    "torch.mm": lambda a: torch.mm(a, a),
    "torch.bmm": lambda a: torch.bmm(a.expand(2, 3, 3), a.expand(2, 3, 3)),
    "linear": lambda a: torch.nn.functional.linear(a, a),
    "a @ v": lambda a: a @ a[0],
}


@dataclass(frozen=True, repr=False)
class AutocastProgram(PrintsAsCode):
    """Steps in order; contexts that are open at the end are left there."""

    steps: tuple[Any, ...]

    def __repr__(self) -> str:
        return "\n" + "\n".join(map(str, self.steps))

    def run(self, accelerator: Any, device: int) -> None:
        """Execute on a device, comparing the dtype and the values of each product with the model.

        Raises:
            ClauseViolation: the first difference, with the step.
        """
        _Runner(accelerator, device).run(self.steps)


class _Runner:
    def __init__(self, accelerator: Any, device: int) -> None:
        self.accelerator = accelerator
        self.device_type = device_type_of(accelerator)
        self.place = method(accelerator, "device")(device)
        supports = method(accelerator, "supports")
        self.dtypes = [dtype for dtype, capability in _CAPABILITIES.items() if supports(capability)]
        self.before = self.settings()
        self.model = AutocastModel(self.before[1])
        self.open: list[contextlib.AbstractContextManager[Any]] = []

    def settings(self) -> tuple[bool, torch.dtype]:
        return torch.is_autocast_enabled(self.device_type), torch.get_autocast_dtype(self.device_type)

    def run(self, steps: Sequence[Any]) -> None:
        try:
            for step in steps:
                getattr(self, f"_{type(step).__name__}")(step)
                self._Product(Product("a @ b", torch.float32))
            while self.open:
                self._Leave(Leave(False))
            self._Product(Product("a @ b", torch.float32))
        finally:
            while self.open:
                self.open.pop().__exit__(None, None, None)
        now = self.settings()
        require(now == self.before, f"after every context, autocast (enabled, dtype) is {now}; due was {self.before}, as before")

    def _Enter(self, step: Enter) -> None:  # noqa: N802 - named after the step
        # A nested context without a dtype takes the outer one's in some versions, which the contract leaves open.
        dtype = step.dtype if step.dtype in self.dtypes or (step.dtype is None and not self.open) else None
        if dtype is None and self.open:
            dtype = self.dtypes[0] if self.dtypes else self.model.default
        arguments = {} if dtype is None else {"dtype": dtype}
        context = method(self.accelerator, "autocast")(**(arguments if step.enabled else {"enabled": False}))
        context.__enter__()
        self.open.append(context)
        self.model.enter(dtype, step.enabled)

    def _Leave(self, step: Leave) -> None:  # noqa: N802
        if not self.open:
            return
        context = self.open.pop()
        self.model.leave()
        if not step.raises:
            context.__exit__(None, None, None)
            return
        try:
            raise Interrupt
        except Interrupt as error:
            swallowed = context.__exit__(Interrupt, error, error.__traceback__)
        require(not swallowed, "autocast swallowed the exception of its body")

    def _Product(self, step: Product) -> None:  # noqa: N802
        if step.inputs not in (torch.float32, *self.dtypes):
            return
        made = _PRODUCTS[step.kind](torch.ones(3, 3, dtype=step.inputs, device=self.place))
        due = self.model.product(step.inputs)
        where = " > ".join("off" if dtype is None else str(dtype) for dtype in self.model.stack) or "no context"
        require(made.dtype == due, f"`{step}` on {self.place} inside {where} gave {made.dtype}; due was {due}")
        require(
            bool((made.float().cpu() == 3).all()), f"`{step}` of 3 x 3 ones on {self.place} inside {where} gave {made.tolist()}"
        )


_HALF = (torch.bfloat16, torch.float16)
_enter = st.sampled_from([Enter(torch.bfloat16), Enter(torch.float16), Enter(None), Enter(None, enabled=False)])
_leave = st.sampled_from([Leave(False), Leave(True)])
_product = st.sampled_from([Product(kind, inputs) for inputs in (torch.float32, *_HALF) for kind in _PRODUCTS])
autocast_programs = st.lists(st.one_of(_enter, _product, _product, _leave), min_size=2, max_size=9).map(
    lambda steps: AutocastProgram(tuple(steps))
)
