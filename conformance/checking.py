"""What a check is written with.

For: naming the clauses of a check, requiring, expecting refusals, and ending without a verdict. Not for: gating by tier, device or
capability; the plugin does that from the clause data before a check runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import pytest

from conformance.check_endings import NotCheckable, NotRun, Unsupported
from conformance.clauses import Tier, get_clause
from conformance.errors import ClauseViolation

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

Check = TypeVar("Check", bound=Callable[..., Any])


def clause(
    *clause_ids: str, tier: str | None = None, examples: float = 1.0, shrinks: bool = True, long: bool = False
) -> Callable[[Check], Check]:
    """Name the clauses that a check covers.

    `tier` chooses among the tiers of clauses that have several, or asks for more than the clauses do; `examples` scales the number
    of Hypothesis examples that the effort asks for, for checks whose examples are dear. Where `shrinks` is false, Hypothesis leaves a
    failing example as it is: the check makes it smaller itself. Among several workers, checks that take `long` start first.

    Raises:
        UnknownClauseError: an id that the contract does not have.
        ValueError: no id, or a tier that does not exist.
    """
    if not clause_ids:
        raise ValueError("a check covers at least one clause: clause('DEV-1', ...)")
    for clause_id in clause_ids:
        get_clause(clause_id)
    if tier is not None:
        Tier(tier)
    return pytest.mark.clause(*clause_ids, tier=tier, examples=examples, shrinks=shrinks, long=long)


def require(condition: object, message: str) -> None:
    """Fail the check unless `condition` holds. The message says what was asked, what came and what was due."""
    if not condition:
        raise ClauseViolation(message)


def expect_refusal(
    call: Callable[..., Any],
    *arguments: Any,
    errors: tuple[type[BaseException], ...] = (ValueError, RuntimeError),
    quoting: str | None = None,
    **keywords: Any,
) -> BaseException:
    """Require that a call raises one of `errors`, with `quoting` somewhere in its text; return what it raised."""
    shown = f"{getattr(call, '__qualname__', call)}({_shown(arguments, keywords)})"
    try:
        answer = call(*arguments, **keywords)
    except errors as refusal:
        text = f"{refusal} {' '.join(getattr(refusal, '__notes__', ()))}"
        require(quoting is None or quoting in text, f"{shown} was refused, but its text does not mention {quoting!r}: {refusal!r}")
        return refusal
    except Exception as other:
        due = " or ".join(error.__name__ for error in errors)
        raise ClauseViolation(f"{shown} raised {type(other).__name__}: {other}; due was {due}") from other
    raise ClauseViolation(f"{shown} was accepted and answered {answer!r}; it must be refused")


def unsupported(evidence: str) -> NoReturn:
    """End the check: the backend does not have the ability, and this is how one can tell."""
    raise Unsupported(evidence)


def not_checkable(reason: str) -> NoReturn:
    """End the check: the runtime exposes nothing to check against."""
    raise NotCheckable(reason)


def not_run(reason: str) -> NoReturn:
    """End the check: a prerequisite is missing."""
    raise NotRun(reason)


def _shown(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    parts = [repr(argument) for argument in arguments] + [f"{name}={value!r}" for name, value in keywords.items()]
    text = _ADDRESS.sub("", ", ".join(parts))  # which would differ from run to run
    return text if len(text) <= 200 else text[:200] + "…"
