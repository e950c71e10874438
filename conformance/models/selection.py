"""What selection must do, as a model over plain values (SEL-1 to SEL-5, SEL-11).

For: `conformance/test_selection.py`, which builds a real registry from the same values and compares. Shares no code with the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EXPLICIT = "SLIME_ACCELERATOR"


@dataclass(frozen=True)
class ModelBackend:
    """A backend as the model knows it. `state` is what its probe does: `usable`, `unusable` or `raises`."""

    name: str
    priority: int
    state: str
    request_variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expectation:
    """`kind` is `selected`, `unmet` (a request for `name` that cannot be met), `unknown` (a name nobody registered) or `nothing`."""

    kind: str
    name: str = ""


def expected_selection(backends: Sequence[ModelBackend], environment: Mapping[str, str]) -> Expectation:
    """The outcome of selecting among `backends` with these variables set."""
    by_name = {backend.name: backend for backend in backends}
    preference = sorted(backends, key=lambda backend: (-backend.priority, backend.name))
    asked = environment.get(EXPLICIT, "").strip().lower()
    if asked in ("", "auto"):
        requested = [b.name for b in preference if any(environment.get(variable, "") != "" for variable in b.request_variables)]
        asked = requested[0] if requested else ""
    elif asked not in by_name:
        return Expectation("unknown", asked)
    if asked:
        return Expectation("selected" if by_name[asked].state == "usable" else "unmet", asked)
    usable = [backend.name for backend in preference if backend.state == "usable"]
    return Expectation("selected", usable[0]) if usable else Expectation("nothing")
