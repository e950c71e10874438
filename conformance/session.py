"""The state of one run in one process.

For: the options, the backend, the children, and the records of checks so far. Not for: pytest's hooks (`plugin.py`) or the wording of the
summary (`summary.py`).
"""

from __future__ import annotations

import platform
import shlex
from functools import cached_property
from typing import Any

from conformance import CONTRACT_REVISION, efforts, isolation
from conformance.backend_under_test import BackendUnderTest
from conformance.backends import fault_ends_process, prepare_backend
from conformance.check_endings import NotRun
from conformance.children import ChildProcesses
from conformance.clauses import Tier, get_clause, tier_of
from conformance.errors import OptionError
from conformance.gating import verdict_before_running
from conformance.isolation import Crash, Journal
from conformance.options import SuiteOptions
from conformance.outcomes import Outcome
from conformance.ranks.plan import RankPlan, plan_ranks
from conformance.ranks.pool import RankPool
from conformance.ranks.torchrun_pool import LaunchedRun
from conformance.recording import (
    CheckRecord,
    CollectedCheck,
    ExampleCounter,
    RunResults,
    assemble,
    falsifying_example,
    outcome_of_error,
    shown_by,
)

_LONGEST_TEXT = 4000  # characters of a failure's message that are kept


class SuiteSession:
    """Made when pytest is configured.

    Raises:
        BackendNameError, FactoryError, OptionError: the backend cannot be prepared, or has no device though `--require-device`
        asks for one.
    """

    def __init__(self, options: SuiteOptions, *, collect_only: bool, launched: LaunchedRun | None = None) -> None:
        self.launched = launched
        self.options = options
        self.collect_only = collect_only
        self.children = ChildProcesses()
        self._hypothesis_folder = efforts.store_in_temporary_folder()
        self.collected: dict[str, CollectedCheck] = {}
        self.selected: set[str] = set()  # checks that the command line left in
        self.records: dict[str, CheckRecord] = {}
        self.results: RunResults | None = None
        self.journal: Journal | None = None
        self._crashed: dict[str, Crash] = {}
        self._counters: dict[str, ExampleCounter] = {}
        if not collect_only:
            try:
                self._check_options()
            except BaseException:
                self.close()
                raise

    def _check_options(self) -> None:
        """Find at the start, as a usage error, what would otherwise be a failed check."""
        _ = self.backend.aligner
        reason = self.backend.no_device_reason
        if self.options.require_device and reason is not None:
            raise OptionError(f"--require-device: no device: {reason}")
        if self.options.ranks is not None:
            _ = self.ranks  # more than this host can have

    @cached_property
    def backend(self) -> BackendUnderTest:
        """The backend under test; prepared at first use."""
        choice = self.options.choice
        prepared = prepare_backend(choice)
        options = self.options
        return BackendUnderTest(
            choice,
            prepared,
            self.children,
            aligner=options.aligner,
            normalizer=options.normalizer,
            effort=options.effort,
            make_ranks=lambda: self.rank_pool,
        )

    @cached_property
    def ranks(self) -> RankPlan:
        """How many ranks this run has, or why none."""
        return plan_ranks(self.options.ranks, self.backend, self.launched)

    @cached_property
    def rank_pool(self) -> RankPool:
        """The ranks of this run, not started yet."""
        return self.ranks.pool(self.options.choice)

    def warm_up(self) -> None:
        """Begin to start what the collected checks need, while the first of them run."""
        self.children.warm_up()
        tiers = {Tier(check["tier"]).order for check in self.collected.values()}
        if max(tiers, default=0) >= Tier.MULTI_RANK.order <= self.options.tier.order and not self.ranks.why_none:
            self.rank_pool.warm_up()

    def close(self) -> None:
        """End the child processes and the ranks."""
        self.children.close()
        if "rank_pool" in vars(self):
            self.rank_pool.close()
        self._hypothesis_folder.close()

    def collect(self, check: str, clause_ids: tuple[str, ...], tier: str | None) -> None:
        """Take note of a check."""
        clauses = tuple(get_clause(clause_id) for clause_id in clause_ids)
        self.collected[check] = {"clauses": list(clause_ids), "tier": tier_of(clauses, tier).value}

    def gate(self, check: str) -> None:
        """Return where a check can run.

        Raises:
            CheckEnded: it cannot; the class and the text say what to report.
        """
        if self.launched is not None and self.launched.lost:
            raise NotRun(self.launched.lost)
        if self.options.isolate == "examples":
            return  # it ran before, or it could not have taken its worker down
        collected = self.collected[check]
        verdict = verdict_before_running(
            tuple(get_clause(clause_id) for clause_id in collected["clauses"]),
            Tier(collected["tier"]),
            backend=self.backend,
            limit=self.options.tier,
            ranks=self.ranks,
        )
        if verdict is not None:
            raise verdict

    def counter_of(self, check: str) -> ExampleCounter:
        """The example counter of a check."""
        return self._counters.setdefault(check, ExampleCounter())

    def record(self, check: str, error: BaseException | None, phase: str, seconds: float = 0.0) -> CheckRecord:
        """The record of a check from the exception that ended a phase of it, or None where it passed."""
        counter = self.counter_of(check)
        outcome = Outcome.PASS if error is None else outcome_of_error(error, phase)
        return CheckRecord(
            check=check,
            clauses=self.collected[check]["clauses"],
            tier=self.collected[check]["tier"],
            outcome=outcome.value,
            text="" if error is None else _shortened(_text_of(error)),
            example="" if error is None else falsifying_example(error),
            examples_run=counter.run,
            examples_discarded=counter.discarded,
            replay=self.replay_line(check) if outcome in (Outcome.FAIL, Outcome.FLAKY) else "",
            seconds=seconds,
            shown={} if error is None else shown_by(error),
        )

    def keep(self, record: dict[str, Any]) -> None:
        """Remember a record; a later phase's failure replaces an earlier pass."""
        kept = self.records.get(record["check"])
        if kept is None or kept.outcome == Outcome.PASS.value:
            self.records[record["check"]] = CheckRecord(**record)

    def keep_crash(self, check: str, crash: Crash) -> None:
        """Remember a check that took its worker process down with it."""
        self._crashed[check] = crash

    def finish(self, *, interrupted: bool) -> None:
        """Assemble the results."""
        for check, crash in self._crashed.items():
            self.records[check] = self._record_of_crash(check, crash)
        # A run can also stop early with the exit code of one that did not (--maxfail, an interrupt that pytest fails to report).
        self.results = self.results_so_far(interrupted=interrupted or not self.selected <= self.records.keys())

    def results_so_far(self, *, interrupted: bool = True) -> RunResults:
        """Results from the records that there are; pytest-xdist's workers tell what they collected only at their end."""
        reported = {
            record.check: CollectedCheck(clauses=record.clauses, tier=record.tier) for record in list(self.records.values())
        }
        return assemble(self.facts(), self.records, {**reported, **self.collected}, interrupted)

    def _record_of_crash(self, check: str, crash: Crash) -> CheckRecord:
        """The record of a check that took its worker down, with the smallest input that was found to do so."""
        looked = bool(crash.example) and self.options.shrink
        smaller = isolation.make_smaller(self._option_list(), check, hung=crash.hung) if looked else None
        text, example = smaller or (crash.ending, crash.example)
        found = f"{crash.ending}. {text}" if smaller and text != crash.ending else crash.ending
        if looked and not smaller:
            found += " (no smaller input was found in the time given)"
        collected = self.collected[check]
        return CheckRecord(
            check=check,
            clauses=collected["clauses"],
            tier=collected["tier"],
            outcome=Outcome.FAIL.value,
            text=_shortened(found),
            example=example,
            replay=self.replay_line(check),
        )

    @property
    def wants_isolation(self) -> bool:
        """Whether checks run in worker processes that may die."""
        if self.collect_only or self.launched or self.options.isolate in ("no", "examples"):
            return False
        if self.options.isolate == "yes" or fault_ends_process(self.options.choice.fault):
            return True
        is_cpu = getattr(self.backend.accelerator, "device_type", "") == "cpu"
        return not self.backend.is_fake and not is_cpu and self.backend.no_device_reason is None

    def facts(self) -> dict[str, Any]:
        """What names this run."""
        import torch

        choice = self.options.choice
        return {
            "backend": self.backend.name,
            "accelerator": choice.accelerator,
            "aligner": self.options.aligner,
            "normalizer": self.options.normalizer,
            "simulated": self.backend.is_fake,
            "no_device_reason": self.backend.no_device_reason,
            "device_count": self.backend.device_count,
            "ranks": self.ranks.count,
            "agents": self.launched.launch.agents if self.launched is not None else 0,
            "fault": choice.fault,
            "contract_revision": CONTRACT_REVISION,
            "tier": self.options.tier.value,
            "effort": self.options.effort,
            "examples": self.options.examples,
            "seed": self.options.seed,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "argv": list(self.options.argv),
        }

    def replay_line(self, check: str) -> str:
        """One line that runs exactly this check again, with the same examples."""
        options = [*self._option_list(), f"--examples={self.options.examples}"]
        return " ".join(["python -m conformance", *options, shlex.quote(check)])

    def _option_list(self) -> list[str]:
        """The options that make another run find the same, the effort's apart."""
        options = self.options
        given = (
            ("--aligner", options.aligner),
            ("--normalizer", options.normalizer),
            ("--ranks", options.ranks),
            ("--schedule", options.choice.schedule),
        )
        return [
            *options.choice.options,
            *(f"{option}={value}" for option, value in given if value),
            f"--hypothesis-seed={options.seed}",
        ]


def _text_of(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text if isinstance(error, AssertionError) or hasattr(error, "text") else f"{type(error).__name__}: {text}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + " … (shortened)"
