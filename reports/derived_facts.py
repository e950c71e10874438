"""Facts of a report that follow from others, or from the suite's source.

For: the writer of a report (`building.py`), and `verify`, which works them out again. Nothing here needs PyTorch or what the suite runs on.
Not for: outcomes, counts and levels (`levels.py`).
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import conformance
from reports.model import SubjectName

SUITE = Path(conformance.__file__).parent
"""The folder of the suite's modules."""


def supplied_subjects(normalizer: str, aligner: str) -> tuple[SubjectName, ...]:
    """The subjects whose code is the vendor's: always the backend and its transport, and what the command line named."""
    named: tuple[tuple[SubjectName, str], ...] = (("normalizer", normalizer), ("aligner", aligner))
    return ("backend", "transport", *(subject for subject, code in named if code))


def configuration_digest(configuration: Mapping[str, Any]) -> str:
    """SHA-256 of what an adapter declares of itself, whatever the order of its fields."""
    return hashlib.sha256(json.dumps(configuration, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@cache
def checks_of_suite() -> Mapping[str, tuple[str, ...]]:
    """Every check that the suite's modules define, as `conformance/test_<area>.py::test_…`, with the clause ids written above it."""
    return {
        f"{SUITE.name}/{path.name}::{function.name}": tuple(_clause_ids(function))
        for path in sorted(SUITE.glob("test_*.py"))
        for function in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
    }


def _clause_ids(function: ast.FunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).rpartition(".")[2] == "clause":
            yield from (str(part.value) for part in decorator.args if isinstance(part, ast.Constant))
