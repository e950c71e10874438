"""The suite's command-line options and what may be written there.

For: `pytest conformance …` and `python -m conformance …`. Not for: options of the reports (`reports/pytest_plugin.py`).
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.backends import FAKE_PREFIX, BackendChoice
from conformance.clauses import Tier
from conformance.effort_sizes import EXAMPLES
from conformance.errors import OptionError

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True)
class GivenOptions:
    """A pytest plugin that carries what was written behind `python -m conformance`, which hands pytest more than that."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class SuiteOptions:
    """The options of one run, checked. `isolate` is auto, yes, no, or examples (for the second look at a crash); `argv` are the words
    of the whole command line (see `command_line`)."""

    choice: BackendChoice
    aligner: str
    normalizer: str
    tier: Tier
    effort: str
    examples: int
    seed: int
    require_device: bool
    isolate: str
    replay_program: str
    ranks: int | None
    shrink: bool
    argv: tuple[str, ...]


def add_options(parser: pytest.Parser) -> None:
    """Declare the options to pytest."""
    group = parser.getgroup("conformance", "accelerator conformance")
    add = group.addoption
    add(
        "--backend",
        default="",
        metavar="NAME",
        help="the backend under test: musa, cuda, cpu, fake-musa, … (an unknown name lists all)",
    )
    add(
        "--accelerator",
        default="",
        metavar="MODULE:FACTORY",
        help="put another accelerator object under test; factory() returns it",
    )
    add(
        "--normalizer",
        default="",
        metavar="MODULE:FUNCTION",
        help="put another function (backend, accelerator) -> backend under PGN-1 to PGN-7 and PGN-9",
    )
    add("--aligner", default="", metavar="MODULE:FUNCTION", help="put another routed-expert alignment function under test")
    add(
        "--tier",
        default=Tier.MULTI_NODE.value,
        metavar="TIER",
        help=f"run checks up to this tier: {', '.join(tier.value for tier in Tier)}",
    )
    add(
        "--effort",
        default="default",
        metavar="EFFORT",
        help=f"examples a property: {', '.join(f'{name} ({count})' for name, count in EXAMPLES.items())}",
    )
    add("--examples", default=None, metavar="N", help="examples a property, instead of the effort's number")
    add("--devices", default=None, metavar="N", help="devices to simulate (fakes) or to use at most")
    add(
        "--ranks",
        default=None,
        metavar="N",
        help="ranks of the multi-rank tier; 4 on fakes and the CPU, else one a device, at most 8",
    )
    add("--fault", default="", metavar="ID", help="break the simulated machine or the reference on purpose; the run must then fail")
    add(
        "--schedule",
        default="",
        metavar="NAME",
        help="the order of work on a simulated machine, for every check: eager, lazy, seeded, directed; without it, checks of order use "
        "seeded and directed, and all others eager",
    )
    add(
        "--replay-program",
        default="",
        metavar="FILE|JSON",
        help="run one stream program, as a failing check prints it, instead of the suite; exit 1 where its result is wrong",
    )
    add(
        "--isolate",
        action="store_const",
        const="yes",
        default="auto",
        help="run checks in worker processes that may crash or hang; the default for real devices other than the CPU",
    )
    add("--no-isolate", dest="isolate", action="store_const", const="no", help="run checks in this process, or in those of -n")
    add("--isolate-examples", dest="isolate", action="store_const", const="examples", help=argparse.SUPPRESS)
    add(
        "--no-shrink",
        dest="shrink",
        action="store_false",
        default=True,
        help="report the first failing input of a check instead of looking for the smallest: sooner, and harder to read",
    )
    add("--require-device", action="store_true", help="a host without a usable device is an error, not a run of the host tier")


def read_options(config: pytest.Config) -> SuiteOptions:
    """The options of this run, which has a seed.

    Raises:
        OptionError: a value is not legal; the message says which are.
    """
    get = config.getoption
    effort = _one_of("--effort", get("effort"), list(EXAMPLES))
    examples = get("examples")
    seed = _seed(str(get("hypothesis_seed")))
    choice = BackendChoice(
        backend=get("backend").strip(),
        accelerator=get("accelerator").strip(),
        devices=None if get("devices") is None else _positive("--devices", get("devices")),
        fault=get("fault").strip(),
        schedule=get("schedule").strip(),
        seed=seed,
    )
    if not choice.backend and not choice.accelerator and not config.option.collectonly:
        raise OptionError(
            "say which backend to test: --backend=fake-musa (a simulated machine), --backend=musa, cuda, npu, xpu, cpu, … or "
            "--accelerator=package.module:factory"
        )
    if choice.fault and choice.backend and not choice.backend.startswith(FAKE_PREFIX):
        raise OptionError(f"--fault={choice.fault}: faults are for simulated machines (--backend=fake-…), not for {choice.backend}")
    if choice.schedule and not choice.backend.startswith(FAKE_PREFIX):
        raise OptionError(
            f"--schedule={choice.schedule}: a simulated machine has schedules (--backend=fake-…); a real device has its own"
        )
    return SuiteOptions(
        choice=choice,
        aligner=get("aligner").strip(),
        normalizer=get("normalizer").strip(),
        tier=Tier(_one_of("--tier", get("tier"), [tier.value for tier in Tier])),
        effort=effort,
        examples=EXAMPLES[effort] if examples is None else _positive("--examples", examples),
        seed=seed,
        require_device=get("require_device"),
        isolate=get("isolate"),
        shrink=bool(get("shrink")),
        replay_program=get("replay_program").strip(),
        ranks=None if get("ranks") is None else _positive("--ranks", get("ranks")),
        argv=command_line(config),
    )


def command_line(config: pytest.Config) -> tuple[str, ...]:
    """Every option of the run in the order in which pytest puts them together: those of its configuration, of PYTEST_ADDOPTS, and given.
    Plugins that PYTEST_PLUGINS names stand there as `-p`, which does the same."""
    given: Iterable[str] = map(str, config.invocation_params.args)
    for plugin in config.pluginmanager.get_plugins():
        if isinstance(plugin, GivenOptions):
            given = plugin.words
    added = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    plugins = [name.strip() for name in os.environ.get("PYTEST_PLUGINS", "").split(",") if name.strip()]
    return (*config.getini("addopts"), *added, *(word for name in plugins for word in ("-p", name)), *given)


def _seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if not 0 <= seed < 1 << 64:
        raise OptionError(f"--hypothesis-seed={text}: expected a whole number from 0 to 2**64 - 1")
    return seed


def _positive(option: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise OptionError(f"{option}={text}: expected a whole number of at least 1")
    return number


def _one_of(option: str, text: str, legal: list[str]) -> str:
    if text not in legal:
        raise OptionError(f"{option}={text}: expected one of {', '.join(legal)}")
    return text
