"""The contract's clauses as typed data.

For: asking what a clause says, who is under test, what it needs. Not for: the text itself (`contract_text.py`) or the checks
(`test_<area>.py`). `docs/contract.md` is rendered from here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from conformance import contract_text
from conformance.errors import ConformanceError


class Level(str, Enum):
    """How binding a clause is, as in RFC 2119."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


class Tier(str, Enum):
    """What a check needs. Each tier needs what the one before it needs."""

    HOST = "host"
    DEVICE = "device"
    MULTI_DEVICE = "multi-device"
    MULTI_RANK = "multi-rank"
    MULTI_NODE = "multi-node"

    @property
    def order(self) -> int:
        """0 for the tier that needs least."""
        return list(Tier).index(self)


class Subject(str, Enum):
    """Whose code a clause puts under test."""

    LIBRARY = "library"
    BACKEND = "backend"
    NORMALIZER = "normalizer"
    TRANSPORT = "transport"
    ALIGNER = "aligner"


@dataclass(frozen=True)
class Clause:
    """One clause. `capability` is the name that switches it on, or None; `known_gap` marks what slime did not meet in August 2026."""

    id: str
    level: Level
    capability: str | None
    text: str
    subject: Subject
    tiers: tuple[Tier, ...]
    known_gap: bool

    @property
    def area(self) -> str:
        """The letters before the number: `DEV` of `DEV-3`."""
        return self.id.partition("-")[0]

    @property
    def has_check(self) -> bool:
        """Whether this version of the suite has a check for it, in a run or not."""
        return not {self.id, self.area} & contract_text.NOT_YET_CHECKED


@dataclass(frozen=True)
class Area:
    """A chapter of the contract."""

    name: str
    title: str
    clauses: tuple[Clause, ...]


class UnknownClauseError(ConformanceError, KeyError):
    """A clause id that the contract does not have."""

    def __str__(self) -> str:
        return str(self.args[0])


def _clause(clause_id: str, level: str, capability: str | None, text: str) -> Clause:
    _, subject, area_tiers = contract_text.AREAS[clause_id.partition("-")[0]]
    tiers = contract_text.TIER_EXCEPTIONS.get(clause_id, area_tiers)
    return Clause(
        id=clause_id,
        level=Level(level),
        capability=capability,
        text=text,
        subject=Subject(subject),
        tiers=tuple(Tier(tier) for tier in tiers),
        known_gap=clause_id in contract_text.KNOWN_GAPS,
    )


CLAUSES: Mapping[str, Clause] = MappingProxyType({row[0]: _clause(*row) for row in contract_text.ROWS})
"""Every clause by id, in the contract's order."""

AREAS: Mapping[str, Area] = MappingProxyType(
    {
        name: Area(name, title, tuple(clause for clause in CLAUSES.values() if clause.area == name))
        for name, (title, _, _) in contract_text.AREAS.items()
    }
)
"""Every area by its letters, in the contract's order."""


def get_clause(clause_id: str) -> Clause:
    """The clause of that id.

    Raises:
        UnknownClauseError: there is none; the message gives the nearest id.
    """
    try:
        return CLAUSES[clause_id]
    except KeyError:
        near = difflib.get_close_matches(clause_id.upper(), CLAUSES, n=1, cutoff=0.0)[0]
        raise UnknownClauseError(f"no clause {clause_id!r} in the contract; the nearest id is {near}") from None


def tier_of(clauses: Sequence[Clause], chosen: str | None) -> Tier:
    """The tier of a check: as it says, else the highest of its clauses' first tiers; the host's where it has none."""
    if chosen is not None:
        return Tier(chosen)
    return max((clause.tiers[0] for clause in clauses), key=lambda tier: tier.order, default=Tier.HOST)
