"""Facts of a report that follow from others, or from the suite's source.

For: the writer of a report (`building.py`), and `verify`, which works them out again. Nothing here needs PyTorch or what the suite runs on.
Not for: outcomes, counts and levels (`levels.py`).
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import conformance
from conformance.clauses import CLAUSES, tier_of
from reports.model import SubjectName, TierName

SUITE = Path(conformance.__file__).parent
"""The folder of the suite's modules."""


def supplied_subjects(normalizer: str, aligner: str) -> tuple[SubjectName, ...]:
    """The subjects whose code is the vendor's: always the backend and its transport, and what the command line named."""
    named: tuple[tuple[SubjectName, str], ...] = (("normalizer", normalizer), ("aligner", aligner))
    return ("backend", "transport", *(subject for subject, code in named if code))


def configuration_digest(configuration: Mapping[str, Any]) -> str:
    """SHA-256 of what an adapter declares of itself, whatever the order of its fields."""
    return hashlib.sha256(json.dumps(configuration, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True)
class SuiteCheck:
    """A check as its source declares it: its clauses, the tier that it needs, whether it is a property, and its share of the examples."""

    clauses: tuple[str, ...]
    tier: TierName
    is_property: bool
    share: float


@cache
def checks_of_suite() -> Mapping[str, SuiteCheck]:
    """Every check that the suite's modules define, by its name, `conformance/test_<area>.py::test_…`."""
    return {
        f"{SUITE.name}/{path.name}::{function.name}": _declared(function)
        for path in sorted(SUITE.glob("test_*.py"))
        for function in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
    }


def _declared(function: ast.FunctionDef) -> SuiteCheck:
    """What stands above a check: `@clause(ids, tier=…, examples=…)` and, for a property, `@given(…)`."""
    calls = [decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call)]
    named = [(ast.unparse(call.func).rpartition(".")[2], call) for call in calls]
    declarations = [call for name, call in named if name == "clause"]
    clauses = tuple(str(part.value) for call in declarations for part in call.args if isinstance(part, ast.Constant))
    given = {word.arg: ast.literal_eval(word.value) for call in declarations for word in call.keywords}
    return SuiteCheck(
        clauses=clauses,
        tier=tier_of([CLAUSES[clause] for clause in clauses if clause in CLAUSES], given.get("tier")).value,
        is_property=any(name == "given" for name, _ in named),
        share=float(given.get("examples", 1.0)),
    )
