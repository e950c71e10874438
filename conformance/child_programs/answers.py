"""One run of a child program for all the checks that read its answer.

For: several checks about one process, which is dear to start. Not for: programs whose arguments a property draws.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from conformance.backend_under_test import BackendUnderTest


def answer_of(
    backend: BackendUnderTest, program: str, *, environment: Mapping[str, str | None] | None = None, fresh_interpreter: bool = False
) -> dict[str, Any]:
    """The answer of `backend.in_child(program, …)`, from the first call with these arguments in this process."""
    return _answer_of(backend, program, tuple(sorted((environment or {}).items())), fresh_interpreter)


@functools.cache
def _answer_of(
    backend: BackendUnderTest, program: str, environment: tuple[tuple[str, str | None], ...], fresh_interpreter: bool
) -> dict[str, Any]:
    answer: dict[str, Any] = backend.in_child(program, environment=dict(environment), fresh_interpreter=fresh_interpreter)
    return answer
