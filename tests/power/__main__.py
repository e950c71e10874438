"""`python -m tests.power`: how many examples it takes until each ordering fault is found, over many seeds.

For: `docs/power.md`, outside CI. Each fault is put in force, and the checks of its clauses run from each seed, in the order of the suite
and at the effort asked for, until one fails. Not for: whether a fault is found at all, which `tests/test_faults.py` shows for the whole
catalogue.

    python -m tests.power --runs=20 --write=docs/power.md
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import itertools
import platform
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import hypothesis
import torch

from conformance import efforts
from conformance.backend_under_test import BackendUnderTest
from conformance.backends import BackendChoice, prepare_backend
from conformance.children import ChildProcesses
from conformance.effort_sizes import EXAMPLES
from conformance.stream_runs import StreamRuns
from fakes.faults import CATALOGUE
from fakes.patching import Patches

_SUITE = Path(importlib.import_module("conformance").__file__ or "").parent


def main() -> int:
    """Measure and print or write the table; 1 where a fault was missed in some run."""
    parser = argparse.ArgumentParser(prog="python -m tests.power", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="seeds a fault, from 0 on")
    parser.add_argument("--effort", default="default", choices=list(EXAMPLES))
    parser.add_argument("--clauses", default="STR,THR,MEM-10,MEM-13,COL-2", help="areas and clauses whose faults are measured")
    parser.add_argument("--only", default="", help="faults whose id contains this")
    parser.add_argument("--write", default="", metavar="FILE", help="write the document there instead of printing it")
    options = parser.parse_args()
    efforts.load_profile(EXAMPLES[options.effort])
    efforts.draw_the_same_everywhere()
    choice = BackendChoice("fake-musa")
    backend = BackendUnderTest(choice, prepare_backend(choice), ChildProcesses())
    checks = _checks()
    began = time.process_time()
    faults = [fault for fault in CATALOGUE.values() if _is_wanted(fault, options)]
    rows: list[tuple[Any, list[int | None]]] = []
    for fault in faults:
        mine = [check for clause_id in fault.clauses for check in checks.get(clause_id, [])]
        rows.append((fault, [_examples_until_found(fault, mine, backend, seed) for seed in range(options.runs)]))
        print(f"{len(rows)} of {len(faults)}: {_row(*rows[-1])}", file=sys.stderr, flush=True)
        if options.write:  # a run takes long: what it has found so far is not lost
            Path(options.write).write_text(_document(rows, len(faults), options, time.process_time() - began), encoding="utf-8")
    if not options.write:
        print(_document(rows, len(faults), options, time.process_time() - began))
    return int(any(None in counts for _, counts in rows))


def _is_wanted(fault: Any, options: argparse.Namespace) -> bool:
    named = set(options.clauses.split(","))
    wanted = any({clause_id, clause_id.partition("-")[0]} & named for clause_id in fault.clauses)
    return wanted and options.only in fault.id and "musa" in fault.personas and not fault.ends_process


def _checks() -> dict[str, list[Callable[..., Any]]]:
    """The checks of each clause, in the order of the suite."""
    found: dict[str, list[Callable[..., Any]]] = {}
    for path in sorted(_SUITE.glob("test_*.py")):
        module = importlib.import_module(f"conformance.{path.stem}")
        for test_name, test in vars(module).items():
            if test_name.startswith("test_") and hasattr(test, "pytestmark"):
                mark = next(mark for mark in test.pytestmark if mark.name == "clause")
                for clause_id in mark.args:
                    found.setdefault(clause_id, []).append(test)
    return found


def _examples_until_found(fault: Any, checks: list[Callable[..., Any]], backend: BackendUnderTest, seed: int) -> int | None:
    """Examples run until a check fails, over all checks of the fault's clauses; None where none does."""
    count = 0
    for check in checks:
        for arguments in _arguments(check, backend):
            with Patches() as patches:
                backend.restart()
                fault.apply(patches)
                runs = _Counting(check)
                try:
                    runs.run(seed, arguments)
                except Exception:  # noqa: BLE001 - whatever a check raises is its failure
                    return count + runs.count
                finally:
                    count += runs.count
    return None


def _arguments(check: Callable[..., Any], backend: BackendUnderTest) -> Iterator[dict[str, Any]]:
    """What pytest would call a check with: fixtures, and each choice of its parameters."""
    marks = [mark for mark in check.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    for values in itertools.product(*[mark.args[1] for mark in marks]):
        parameters = {mark.args[0]: value for mark, value in zip(marks, values, strict=True)}
        wanted = set(inspect.signature(check).parameters) & {"backend", "stream_runs"}
        fixtures: dict[str, Any] = {name: StreamRuns(backend) if name == "stream_runs" else backend for name in wanted}
        yield {**fixtures, **parameters}


class _Counting:
    """Runs one check from a seed and counts its examples; a check without examples counts as one."""

    def __init__(self, check: Callable[..., Any]) -> None:
        self.count = 0
        self._check = check

    def run(self, seed: int, arguments: dict[str, Any]) -> None:
        check: Any = self._check
        handle = getattr(check, "hypothesis", None)
        if handle is None:
            self.count = 1
            check(**arguments)
            return
        mark = next(mark for mark in check.pytestmark if mark.name == "clause")
        original = handle.inner_test

        @functools.wraps(original)
        def counted(*args: Any, **keywords: Any) -> Any:
            self.count += 1
            return original(*args, **keywords)

        usual = hypothesis.settings()
        phases = tuple(phase for phase in usual.phases if phase is not hypothesis.Phase.shrink)
        handle.inner_test = counted
        check._hypothesis_internal_use_seed = seed
        check._hypothesis_internal_use_settings = hypothesis.settings(
            usual, max_examples=max(1, round(usual.max_examples * mark.kwargs["examples"])), phases=phases
        )
        try:
            check(**arguments)
        finally:
            handle.inner_test = original


def _row(fault: Any, counts: list[int | None]) -> str:
    found = sorted(count for count in counts if count is not None)
    shown = f"{found[0]} | {median(found):g} | {found[-1]}" if found else "- | - | -"
    return f"| `{fault.id}` | {', '.join(fault.clauses)} | {shown} | {len(found)} of {len(counts)} |"


def _document(rows: list[tuple[Any, list[int | None]]], of: int, options: argparse.Namespace, seconds: float) -> str:
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    missed = [fault.id for fault, counts in rows if None in counts]
    examples = EXAMPLES[options.effort]
    runs, effort = options.runs, options.effort
    given = f"--runs={runs} --effort={effort} --clauses={options.clauses}" + (f" --only={options.only}" if options.only else "")
    found = f"{len(rows)} of {of} faults were measured; found in every run: {len(rows) - len(missed)}"
    lines = [
        "# Power: how soon the suite finds faults of order",
        "",
        f"Written by `python -m tests.power {given}` on {when},",
        f"with torch {torch.__version__} and Python {platform.python_version()}, on a simulated MUSA machine of 2 devices, in",
        f"{seconds:.0f} s of processor time.",
        "",
        f"Each fault was put in force {runs} times, with the Hypothesis seeds 0 to {runs - 1}. The checks of its clauses then",
        f"ran in the order of the suite at the effort `{effort}` ({examples} examples a property, times the check's own scale)",
        "until one failed. The columns count the examples of these checks up to the one that failed; a check without examples",
        "counts as one. An example of a stream program runs under the schedules `seeded` and `directed`.",
        "",
        f"{found}; missed in some run: {', '.join(missed)}." if missed else f"{found}.",
        "",
        "| fault | clauses | fewest | median | most | found |",
        "|---|---|---|---|---|---|",
        *(_row(fault, counts) for fault, counts in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
