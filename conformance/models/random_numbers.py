"""What each generator must draw, without knowing a single number.

For: RNG-1, RNG-2, RNG-3, RNG-5 and RNG-6. A generator's state is named by the seed and the draws since; two equal names must give
equal numbers on one device. Not for: which numbers a seed gives, or whether two devices agree; a backend may choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SEEDS = 2**64
DrawName = tuple[str, int]
"""One call that draws: its kind and its size."""


@dataclass(frozen=True)
class StateName:
    """The name of a state: the seed modulo 2⁶⁴, and the draws since."""

    seed: int
    draws: tuple[DrawName, ...] = ()

    def after(self, draw: DrawName) -> StateName:
        """The name of the state after one more draw."""
        return StateName(self.seed, (*self.draws, draw))


class GeneratorsModel:
    """The generators of several places, each seeded before anything else."""

    def __init__(self, seeds: dict[Any, int]) -> None:
        self.states: dict[Any, StateName] = {place: StateName(seed % SEEDS) for place, seed in seeds.items()}
        self._drawn: dict[tuple[Any, StateName], list[int]] = {}

    def seed(self, place: Any, seed: int) -> None:
        """A place is seeded."""
        self.states[place] = StateName(seed % SEEDS)

    def draw(self, place: Any, draw: DrawName, numbers: list[int]) -> list[int] | None:
        """A place drew `numbers` (bits). What the same state gave before where that differs, else None."""
        name = self.states[place] = self.states[place].after(draw)
        due = self._drawn.setdefault((place, name), numbers)
        return None if due == numbers else due

    def paths(self, place: Any) -> list[StateName]:
        """The longest states of a place that were drawn, so that every draw lies on the way to one of them."""
        names = [name for where, name in self._drawn if where == place]
        before = {StateName(name.seed, name.draws[:-1]) for name in names}
        return [name for name in names if name not in before]
