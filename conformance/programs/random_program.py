"""Programs that seed, draw, save and restore on several devices and the CPU, against `models/random_numbers.py`.

For: RNG-1, RNG-2, RNG-3, RNG-5 and RNG-6 as one language. At its end each program restores every state that it saved and draws;
then it seeds every device again, alone, and draws what was drawn after each seed. Not for: first use of a device, or states that
must be refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from conformance.accelerator_access import method
from conformance.checking import require
from conformance.models.random_numbers import SEEDS, GeneratorsModel, StateName
from conformance.programs.printing import PrintsAsCode

CPU = "cpu"
"""The place of the host's generator beside the devices' indices."""
Place = int | str

_KINDS: dict[str, Callable[[int, torch.device], torch.Tensor]] = {
    "rand": lambda size, device: torch.rand(size, device=device),
    "randn": lambda size, device: torch.randn(size, device=device),
    "randint": lambda size, device: torch.randint(0, 1 << 30, (size,), device=device),
    "randperm": lambda size, device: torch.randperm(size, device=device),
    "bernoulli": lambda size, device: torch.full((size,), 0.5, device=device).bernoulli(),
    "exponential": lambda size, device: torch.empty(size, device=device).exponential_(),
    "dropout": lambda size, device: torch.nn.functional.dropout(torch.ones(size, device=device)),
}


def draw_numbers(kind: str, size: int, device: torch.device) -> list[int]:
    """The bits of what one call draws on a device."""
    drawn = _KINDS[kind](size, device).cpu()
    bits: list[int] = (drawn if drawn.dtype == torch.int64 else drawn.view(torch.int32)).tolist()
    return bits


@dataclass(frozen=True)
class Draw:
    """One call that draws on a place while a device is current."""

    kind: str
    size: int
    place: Place
    current: int

    def __str__(self) -> str:
        return f"{self.kind}({self.size}) on {self.place}  # while {self.current} is current"


@dataclass(frozen=True)
class Seed:
    """`manual_seed(seed)` with a device current, or of the host's generator."""

    seed: int
    place: Place

    def __str__(self) -> str:
        return f"seed {self.place} with {self.seed}"


@dataclass(frozen=True)
class SeedAll:
    """`manual_seed_all(seed)`."""

    seed: int

    def __str__(self) -> str:
        return f"manual_seed_all({self.seed})"


@dataclass(frozen=True)
class Save:
    """Keep the state of a device; `in_context`: inside a context that makes the device PyTorch's default."""

    device: int
    current: int
    in_context: bool

    def __str__(self) -> str:
        where = f"with torch.device({self.device}): " if self.in_context else ""
        return f"{where}save {self.device}  # while {self.current} is current"


@dataclass(frozen=True)
class Restore:
    """Put a kept state of the device back, the `which`-th modulo their number."""

    device: int
    current: int
    which: int
    in_context: bool

    def __str__(self) -> str:
        where = f"with torch.device({self.device}): " if self.in_context else ""
        return f"{where}restore {self.device} to its save[{self.which}]  # while {self.current} is current"


@dataclass(frozen=True)
class AskSeed:
    """`initial_seed()` with a device current."""

    device: int

    def __str__(self) -> str:
        return f"initial_seed() of {self.device}"


@dataclass(frozen=True, repr=False)
class RandomProgram(PrintsAsCode):
    """Statements in order, after each device was seeded with its own seed. Devices count modulo their number."""

    statements: tuple[Any, ...]

    def __repr__(self) -> str:
        return "\n" + "\n".join(map(str, self.statements))

    def run(self, accelerator: Any) -> None:
        """Execute on a backend, comparing with the model after each statement; the host's generator is then as it was.

        Raises:
            ClauseViolation: the first difference, with the statement.
        """
        host = torch.default_generator.get_state()
        try:
            _Runner(accelerator).run(self.statements)
        finally:
            torch.default_generator.set_state(host)
            method(accelerator, "set_device")(0)


class _Runner:
    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator
        self.count = min(int(method(accelerator, "device_count")()), _DEVICES)
        self.saved: dict[int, list[tuple[torch.Tensor, torch.Tensor, StateName]]] = {}
        self.model = GeneratorsModel({})

    def run(self, statements: Sequence[Any]) -> None:
        uses_host = any(getattr(statement, "place", None) == CPU for statement in statements)
        for place in (*range(self.count), *([CPU] if uses_host else [])):
            self._Seed(Seed(1000 + (place if isinstance(place, int) else _DEVICES), place))
        for statement in statements:
            getattr(self, f"_{type(statement).__name__}")(statement)
        for device, saves in self.saved.items():
            for state, copy, name in saves:
                require(
                    torch.equal(state, copy), f"the state of device {device} that was saved after {_shown(name)} has changed since"
                )
                method(self.accelerator, "set_rng_state")(state, device)
                self.model.states[device] = name
                self.draw(device, ("rand", 3), f"restoring the state that device {device} had after {_shown(name)}")
        for place in list(self.model.states):
            for name in self.model.paths(place):
                self._Seed(Seed(name.seed, place))
                for draw in name.draws:
                    self.draw(place, draw, f"seeding {place} again with {name.seed} and the same draws, alone")

    def _Draw(self, statement: Draw) -> None:  # noqa: N802 - named after the statement
        method(self.accelerator, "set_device")(statement.current % self.count)
        self.draw(self.place(statement.place), (statement.kind, statement.size), f"`{statement}`")

    def draw(self, place: Place, draw: Any, story: str) -> None:
        kind, size = draw
        device = torch.device("cpu") if place == CPU else method(self.accelerator, "device")(place)
        numbers = draw_numbers(kind, size, device)
        due = self.model.draw(place, draw, numbers)
        require(
            due is None,
            f"{story}: {kind}({size}) on {place} in the state after {_shown(self.model.states[place], but_last=True)} gave the bits "
            f"{numbers}; due were {due}, as that state gave before",
        )

    def _Seed(self, statement: Seed) -> None:  # noqa: N802
        place = self.place(statement.place)
        if isinstance(place, str):
            torch.default_generator.manual_seed(statement.seed)
        else:
            method(self.accelerator, "set_device")(place)
            method(self.accelerator, "manual_seed")(statement.seed)
        self.model.seed(place, statement.seed)

    def _SeedAll(self, statement: SeedAll) -> None:  # noqa: N802
        method(self.accelerator, "manual_seed_all")(statement.seed)
        for device in range(self.count):
            self.model.seed(device, statement.seed)

    def _Save(self, statement: Save) -> None:  # noqa: N802
        device = statement.device % self.count
        method(self.accelerator, "set_device")(statement.current % self.count)
        with self.context(device, statement.in_context):
            state = method(self.accelerator, "get_rng_state")(device)
        right = isinstance(state, torch.Tensor) and state.dtype == torch.uint8 and state.device.type == "cpu" and state.dim() == 1
        shown = f"{state.dtype}{tuple(state.shape)} on {state.device}" if isinstance(state, torch.Tensor) else repr(state)
        require(right, f"`{statement}`: the state is {shown}; due was a one-dimensional torch.uint8 tensor on the CPU")
        self.saved.setdefault(device, []).append((state, state.clone(), self.model.states[device]))

    def _Restore(self, statement: Restore) -> None:  # noqa: N802
        device = statement.device % self.count
        saves = self.saved.get(device)
        if not saves:
            return
        state, _, name = saves[statement.which % len(saves)]
        method(self.accelerator, "set_device")(statement.current % self.count)
        with self.context(device, statement.in_context):
            method(self.accelerator, "set_rng_state")(state, device)
        self.model.states[device] = name

    def _AskSeed(self, statement: AskSeed) -> None:  # noqa: N802
        device = statement.device % self.count
        method(self.accelerator, "set_device")(device)
        seed = method(self.accelerator, "initial_seed")()
        due = self.model.states[device].seed
        require(
            type(seed) is int and seed % SEEDS == due,
            f"initial_seed() with device {device} current is {seed!r}; due was {due}, the seed last set or restored",
        )

    def place(self, place: Place) -> Place:
        return place if isinstance(place, str) else place % self.count

    def context(self, device: int, is_default: bool) -> contextlib.AbstractContextManager[Any]:
        found: torch.device = method(self.accelerator, "device")(device)
        return found if is_default else contextlib.nullcontext()


def _shown(name: StateName, but_last: bool = False) -> str:
    draws = name.draws[:-1] if but_last else name.draws
    return f"seed {name.seed}" + "".join(f", {kind}({size})" for kind, size in draws)


_DEVICES = 3

_SEEDS = (0, 1, 2, 7, 2**31, 2**32 - 1, 2**32 + 7, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -(2**63))
seeds = st.sampled_from(_SEEDS)

# Sampled from lists, which is much cheaper to draw than building each from parts; the simplest come first.
_DEVICE_NUMBERS = range(_DEVICES)
_draw = st.sampled_from(
    [
        Draw(kind, size, place, current)
        for size in (1, 5, 2, 16, 0)
        for current in _DEVICE_NUMBERS
        for place in _DEVICE_NUMBERS
        for kind in _KINDS
    ]
)
_seed = st.sampled_from(
    [*(Seed(seed, device) for device in _DEVICE_NUMBERS for seed in _SEEDS), *(SeedAll(seed) for seed in _SEEDS for _ in range(2))]
)
_save = st.sampled_from(
    [Save(device, current, inside) for inside in (False, True) for current in _DEVICE_NUMBERS for device in _DEVICE_NUMBERS]
)
_restore = st.sampled_from(
    [
        Restore(device, current, which, inside)
        for inside in (False, True)
        for which in range(3)
        for current in _DEVICE_NUMBERS
        for device in _DEVICE_NUMBERS
    ]
)
_ask = st.sampled_from([AskSeed(device) for device in _DEVICE_NUMBERS])
_on_host = st.sampled_from(
    [*(Draw(kind, size, CPU, 0) for size in (1, 5, 0) for kind in _KINDS), *(Seed(seed, CPU) for seed in _SEEDS)]
)


def _programs(*choices: st.SearchStrategy[Any]) -> st.SearchStrategy[RandomProgram]:
    return st.lists(st.one_of(*choices), min_size=2, max_size=8).map(lambda statements: RandomProgram(tuple(statements)))


seed_programs = _programs(_draw, _draw, _seed)
state_programs = _programs(_draw, _draw, _save, _restore, _seed)
device_programs = _programs(_draw, _draw, _draw, _save, _restore, _seed)
initial_seed_programs = _programs(_seed, _ask, _ask, _draw, _save, _restore)
host_programs = _programs(_draw, _on_host, _on_host, _seed, _save, _restore)
