"""A failing order shrinks to the decisions that make it fail."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, settings

import fakes
from fakes.scheduling.hypothesis_strategy import schedules
from fakes.scheduling.policies import Policy, Recorded, Seeded
from fakes.scheduling.shrinking import described, shrink_schedule


def _fails(machine: fakes.Machine, policy: Policy) -> bool:
    """Fifty launches on two streams, one of which must not be late: the ninth is read without a wait."""
    machine.reset(schedule=policy)
    side = torch.musa.Stream()
    numbers = torch.zeros(4, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with torch.musa.stream(side):
        for _ in range(6):
            numbers.add_(1)
        made = numbers * 2
    copy = numbers.new_zeros(4)
    for _ in range(30):
        copy.add_(1)
    used = made + 0
    torch.musa.synchronize()
    return used.tolist() != [12] * 4


def test_a_failing_seed_shrinks_to_one_launch(plain_machine: fakes.Machine) -> None:
    failing = None
    for seed in range(50):
        failing = _recorded(plain_machine, seed)
        if failing is not None:
            break
    assert failing is not None and len(failing) > 3
    shrunk = shrink_schedule(lambda policy: _fails(plain_machine, policy), failing)
    assert len(shrunk.given) == 1
    ((number, _),) = shrunk.given.items()
    assert number <= 9
    assert f"launch {number} is held" in described(shrunk)
    assert _fails(plain_machine, Recorded(shrunk.given))


def _recorded(machine: fakes.Machine, seed: int) -> dict[int, int] | None:
    """The decisions of a seed, if it fails."""
    policy = Seeded(seed)
    return dict(policy.decisions) if _fails(machine, policy) else None


def test_an_order_that_does_not_fail_is_refused(plain_machine: fakes.Machine) -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink_schedule(lambda policy: _fails(plain_machine, policy), {})
    assert described(Recorded()) == "every launch runs when it is issued"


def test_a_schedule_that_hypothesis_draws_shrinks_to_one_launch(plain_machine: fakes.Machine) -> None:
    smallest = find(
        schedules(launches=50),
        lambda policy: _fails(plain_machine, policy),
        settings=settings(
            max_examples=300,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert smallest.given == {3: 40}
