"""Every order of a small program, each once.

For: `explore`, which runs a program again and again, once for each class of orders that could differ. Not for: long programs (the number
of orders grows without mercy), nor orders that differ in what the host does meanwhile.

Two orders are equivalent where every pair of conflicting launches (a byte in common, one of them writing) runs in the same order: such
orders give the same values. `explore` runs exactly one order of each class, by dynamic partial-order reduction: it runs one order,
finds in it the pairs of conflicting launches that could have run the other way round, and goes back to run each of those (source sets
and sleep sets: P. Abdulla, S. Aronis, B. Jonsson, K. Sagonas, "Optimal dynamic partial order reduction", POPL 2014).

The host runs ahead of the device until it has to wait; what it does besides (queries, writing pinned memory while a copy is pending) is
not varied. The program must do the same thing each time as long as it reads the same values, launch from one thread, and draw nothing
from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fakes.errors import UnfinishedExplorationError
from fakes.scheduling.accesses import conflict
from fakes.scheduling.happens_before import is_before
from fakes.scheduling.launches import Launch
from fakes.scheduling.policies import Lazy
from fakes.scheduling.scheduler import DeferringScheduler

Result = TypeVar("Result")
Name = tuple[int, int]
"""A launch, the same in every run: (the place of its queue in the order of first use, its position there)."""


@dataclass(frozen=True)
class Run(Generic[Result]):
    """One order: `order` names the launches as they ran, with the lines that issued them; `result` is what the program returned, None
    where it raised `error`."""

    order: tuple[str, ...]
    result: Result | None
    error: Exception | None


class _Redundant(BaseException):
    """Ends a run whose order is equivalent to one that was run."""


class _Step:
    """What is known of one place in the order: which launch was taken, what else is to be tried, and what is covered elsewhere."""

    def __init__(self, sleeping: dict[Name, Launch]) -> None:
        self.taken: Launch | None = None
        self.enabled: dict[Name, Launch] = {}
        self.backtrack: dict[Name, None] = {}
        self.done: set[Name] = set()
        self.sleeping = sleeping


def _name(launch: Launch) -> Name:
    return launch.queue.timeline, launch.position


def _dependent(first: Launch, second: Launch) -> bool:
    return any(conflict(one, other) for one in first.accesses for other in second.accesses)


class ExploringScheduler(DeferringScheduler):
    """Runs nothing before the host waits, and then what `steps` say; beyond them, what was issued first and is not asleep."""

    def __init__(self, steps: list[_Step], lock: Any) -> None:
        super().__init__(Lazy(), lock=lock, reverses=lambda: False)
        self.steps = steps
        self.depth = 0
        self.ran: list[Launch] = []
        self.is_over = False

    def _conflicting(self, conflicts: Sequence[Any], recorded: Sequence[Any]) -> None:
        """Conflicts are found in the order that was run."""

    def _advance(self) -> None:
        pass

    def _end_life(self, *_: Any) -> None:
        # The end of a block's life is no step of its own.
        pass

    def _best(self, limits: Any) -> Launch | None:  # noqa: ARG002 - whatever the host needs, any may run first
        ready: dict[Name, Launch] = {}
        for queue in self._queues:
            if queue.pending and queue.pending[0].is_ready:
                head = queue.pending[0]
                if head.kernel is None:
                    return head  # a record or a wait touches nothing
                ready[_name(head)] = head
        if not ready or self.is_over:
            return next(iter(ready.values()), None)
        return self._chosen(ready)

    def _chosen(self, ready: dict[Name, Launch]) -> Launch:
        if self.depth == len(self.steps):
            sleeping = self._sleeping()
            step = _Step(sleeping)
            awake = [name for name in ready if name not in sleeping]
            if not awake:
                self.is_over = True
                raise _Redundant
            self.steps.append(step)
            first = min(awake, key=lambda name: ready[name].sequence)
            step.backtrack[first] = None
            choice = first
        else:
            step = self.steps[self.depth]
            choice = _name(step.taken) if step.taken is not None else next(iter(step.backtrack))
            # The launches of this run, whose memory lies elsewhere than in the last one.
            step.sleeping = {name: ready[name] for name in step.sleeping if name in ready}
        step.enabled = ready
        launch = ready[choice]
        step.taken = launch
        self.depth += 1
        self.ran.append(launch)
        return launch

    def _sleeping(self) -> dict[Name, Launch]:
        """What need not be run here: it was run before the last launch, or before an earlier one, and commutes with all since."""
        if not self.steps:
            return {}
        last = self.steps[-1]
        taken = last.taken
        if taken is None:
            return {}
        candidates = {**last.sleeping, **{name: last.enabled[name] for name in last.done if name in last.enabled}}
        return {name: launch for name, launch in candidates.items() if name != _name(taken) and not _dependent(launch, taken)}


class Prepared:
    """A schedule whose scheduler is made already, for whoever drives one by hand."""

    def __init__(self, scheduler: DeferringScheduler) -> None:
        self.scheduler = scheduler
        self.decisions = scheduler.policy.decisions

    def hold(self, launch: Launch) -> int:
        """See `Policy.hold`."""
        return self.scheduler.policy.hold(launch)


def _ancestors(ran: Sequence[Launch]) -> list[int]:
    """For each launch of an order, as a bit set, those before it that it must follow, by the program or by conflicts."""
    ancestors: list[int] = []
    for index, launch in enumerate(ran):
        mine = 0
        for earlier in range(index - 1, -1, -1):
            if not mine >> earlier & 1 and (is_before(ran[earlier], launch) or _dependent(ran[earlier], launch)):
                mine |= 1 << earlier | ancestors[earlier]
        ancestors.append(mine)
    return ancestors


def _plan_reversals(steps: list[_Step], ran: Sequence[Launch]) -> None:
    """For each pair of conflicting launches that nothing else orders, have the later one tried before the earlier one."""
    ancestors = _ancestors(ran)
    for later, launch in enumerate(ran):
        for earlier in range(later):
            if not ancestors[later] >> earlier & 1 or is_before(ran[earlier], launch):
                continue
            between = [
                middle
                for middle in range(earlier + 1, later)
                if ancestors[later] >> middle & 1 and ancestors[middle] >> earlier & 1
            ]
            if between:
                continue
            # What ran after the earlier one without depending on it, and then the later one.
            rest = [index for index in range(earlier + 1, later) if not ancestors[index] >> earlier & 1] + [later]
            step = steps[earlier]
            initials = [
                _name(ran[index])
                for index in rest
                if _name(ran[index]) in step.enabled and not any(ancestors[index] >> other & 1 for other in rest if other < index)
            ]
            if not any(name in step.backtrack for name in initials):
                step.backtrack.update(dict.fromkeys(initials[:1] or step.enabled))


def explore(program: Callable[[], Result], *, most: int = 10_000) -> Iterator[Run[Result]]:
    """Run a program on the installed machine once for each class of equivalent orders.

    Each time the machine is as after a reboot (same devices and memory), so the program makes its tensors and streams itself; when it
    returns, what is pending runs too, and the machine's own schedule comes back at the end. `most` is how many times the program may be
    started, orders that turn out to be covered included. Under pytest, `simulated_machine(schedule="explore")` does this to a test.

    Raises:
        MachineNotInstalledError: no machine is installed.
        UnfinishedExplorationError: there are more.
    """
    from fakes.machine import current_machine

    machine = current_machine()
    before = machine.settings
    steps: list[_Step] = []
    started = 0
    try:
        while True:
            if started >= most:
                raise UnfinishedExplorationError(
                    f"more than {most} runs are needed; give explore() a smaller program or a greater `most`"
                )
            started += 1
            scheduler = ExploringScheduler(steps, machine.lock)
            machine.reset(schedule=Prepared(scheduler))
            run = _run_once(program, scheduler)
            _plan_reversals(steps, scheduler.ran)
            if run is not None:
                yield run
            while steps:
                step = steps[-1]
                if step.taken is not None:
                    step.done.add(_name(step.taken))
                left = [name for name in step.backtrack if name not in step.done and name not in step.sleeping]
                if left:
                    step.taken = step.enabled[left[0]]
                    break
                steps.pop()
            if not steps:
                return
    finally:
        machine.reset(schedule=before.schedule, seed=before.seed, detect_races=before.detect_races)


def _run_once(program: Callable[[], Result], scheduler: ExploringScheduler) -> Run[Result] | None:
    result: Result | None = None
    error: Exception | None = None
    try:
        try:
            result = program()
        except Exception as raised:  # noqa: BLE001 - the program's own failure is what is looked for
            error = raised
        scheduler.drain()
    except _Redundant:
        return None
    finally:
        scheduler.is_over = True
    return Run(tuple(f"{launch!r}, at {launch.where}" for launch in scheduler.ran), result, error)
