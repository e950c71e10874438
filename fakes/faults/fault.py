"""What a fault is: one small, named deviation from the contract.

For: the catalogue's entries. Not for: the catalogue itself (`fakes.faults`) or running the suite under a fault (`conformance`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fakes.patching import Patches


@dataclass(frozen=True)
class Fault:
    """A deviation, and the clauses that must notice it.

    `id` is kebab-case, its area first (`vis-empty-read-as-unset`). `clauses` are those whose checks fail under it, at least one.
    `summary` says in one sentence what goes wrong. `seen_in` is a field case, `seed` or `derived`. `apply` makes the deviation
    through the given `Patches`, which undo it; it may be called before or after a machine is installed. `personas` are the
    devices it makes sense for. `ends_process` is true where the deviation aborts, crashes or hangs the process that meets it, so that the
    suite must run its checks apart.
    """

    id: str
    clauses: tuple[str, ...]
    summary: str
    seen_in: str
    apply: Callable[[Patches], None]
    personas: tuple[str, ...] = ("musa",)
    ends_process: bool = False
