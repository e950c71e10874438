"""The few decisions of a simulated machine's scheduler that a wrong result needs.

For: the last lines of a failure on a simulated machine. A decision is for how many further launches one launch is held back; without any,
work runs in the order of issue. Not for: real devices, which decide for themselves and tell nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conformance.simulated import machine_here

if TYPE_CHECKING:
    from conformance.backend_under_test import BackendUnderTest

_SEEDS = 64  # orders that are tried where the failing one was not a matter of decisions alone
_MOST_RUNS = 400


@dataclass(frozen=True)
class Decision:
    """A launch, by its number since the machine was started, and for how many further launches it was held back."""

    number: int
    held: int
    what: str

    def __str__(self) -> str:
        until = "until somebody waits for it" if self.held > 1 << 32 else f"for {self.held} more launches"
        return f"launch {self.number}, {self.what}, is held back {until}"


def smallest_decisions(
    backend: BackendUnderTest, fails: Callable[[], bool], seed: int, names: Mapping[tuple[int, int], str]
) -> list[Decision] | None:
    """The decisions of a failing run of which none can be left out; None where no order that decisions make fails. `fails` runs the program
    on the machine as it was just restarted; the first try is the random order of `seed`. `names` are the program's own of its streams, by
    device and by the stream's number there."""
    from fakes.scheduling.policies import Recorded, Seeded

    machine = machine_here()
    if machine is None:
        return None
    devices = backend.device_count

    def fails_under(policy: Any) -> bool:
        machine.reset(schedule=policy, devices=devices)
        return fails()

    found: Mapping[int, int] | None = None
    for attempt in range(_SEEDS):
        policy = Seeded(seed if attempt == 0 else attempt - 1)
        if fails_under(policy) and fails_under(Recorded(policy.decisions)):
            found = dict(policy.decisions)
            break
    if found is None:
        return None
    kept = _without_what_is_not_needed(found, lambda decisions: fails_under(Recorded(decisions)))
    last = _Noting(kept, names)
    fails_under(last)
    return [Decision(number, held, last.seen.get(number, "")) for number, held in sorted(kept.items())]


def _without_what_is_not_needed(decisions: Mapping[int, int], fails: Callable[[Mapping[int, int]], bool]) -> dict[int, int]:
    """Leave out halves, then quarters, …, then single decisions, as long as it still fails."""
    kept = dict(decisions)
    runs = 0
    size = max(1, len(kept) // 2)
    while kept:
        numbers = sorted(kept)
        shorter = False
        for start in range(0, len(numbers), size):
            fewer = {number: kept[number] for number in kept if number not in numbers[start : start + size]}
            runs += 1
            if runs <= _MOST_RUNS and len(fewer) < len(kept) and fails(fewer):
                kept, shorter = fewer, True
        if not shorter and size == 1:
            break
        size = size if shorter and size == 1 else max(1, size // 2)
    return kept


class _Noting:
    """Decisions as given, noting what was launched."""

    def __init__(self, given: Mapping[int, int], names: Mapping[tuple[int, int], str]) -> None:
        self._given, self._names = given, names
        self.decisions: dict[int, int] = {}
        self.seen: dict[int, str] = {}

    def hold(self, launch: Any) -> int:
        """See `fakes.scheduling.policies.Policy.hold`."""
        stream = launch.queue.stream
        name = self._names.get((stream.device_index, stream.id), f"stream {stream.id} of device {stream.device_index}")
        self.seen[launch.number] = f"`{launch.name.removeprefix('aten::')}` on {name}"
        held = self._given.get(launch.number, 0)
        if held:
            self.decisions[launch.number] = held
        return held
