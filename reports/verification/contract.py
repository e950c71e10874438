"""The contract as a verifier knows it.

For: comparing a report's clauses with. Not for: the text (`conformance.contract_text`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from conformance import CONTRACT_REVISION
from conformance.clauses import AREAS, CLAUSES, Clause
from reports.contract_digest import contract_digest


@dataclass(frozen=True)
class Contract:
    """A revision: its clauses by id and the titles of its areas by name, in order, and its digest."""

    revision: str
    clauses: Mapping[str, Clause]
    areas: Mapping[str, str]
    digest: str


@cache
def this_contract() -> Contract:
    """The one that this version of the suite holds."""
    return Contract(CONTRACT_REVISION, CLAUSES, {area.name: area.title for area in AREAS.values()}, contract_digest())
