"""What each policy makes of a missing wait, of polling, of host memory, and of its seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fakes
from fakes.scheduling.policies import HELD, Drawn, Lazy, Recorded, Seeded


def _produce_and_consume(*, waits: bool) -> list[float]:
    """A value is made on one stream and used on another."""
    producer = torch.musa.Stream()
    source = torch.ones(2, device="musa")
    producer.wait_stream(torch.musa.current_stream())
    with torch.musa.stream(producer):
        made = source * 3
    if waits:
        torch.musa.current_stream().wait_stream(producer)
    used = made + 1
    values: list[float] = used.tolist()
    torch.musa.synchronize()
    return values


def _overwrite() -> list[float]:
    """A buffer is overwritten while another stream may still read it."""
    reader = torch.musa.Stream()
    buffer = torch.ones(2, device="musa")
    reader.wait_stream(torch.musa.current_stream())
    with torch.musa.stream(reader):
        seen = buffer * 2
    buffer.fill_(5)
    torch.musa.synchronize()
    return seen.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded", "directed"])
def test_with_the_wait_every_policy_gives_the_value(plain_machine: fakes.Machine, schedule: str) -> None:
    for seed in range(20):
        plain_machine.reset(schedule=schedule, seed=seed)
        assert _produce_and_consume(waits=True) == [4, 4]


def test_without_the_wait_eager_is_right_and_lazy_and_directed_are_wrong(plain_machine: fakes.Machine) -> None:
    assert _produce_and_consume(waits=False) == [4, 4]
    for schedule in ("lazy", "directed"):
        plain_machine.reset(schedule=schedule)
        assert all(math.isnan(value) for value in _produce_and_consume(waits=False))


def test_directed_turns_a_pair_that_lazy_leaves_in_order(plain_machine: fakes.Machine) -> None:
    plain_machine.reset(schedule="lazy")
    assert _overwrite() == [2, 2]
    plain_machine.reset(schedule="directed")
    assert _overwrite() == [10, 10]


def test_reversals_that_exclude_each_other_are_found_by_other_seeds(plain_machine: fakes.Machine) -> None:
    def append() -> float:
        number = torch.zeros(1, dtype=torch.float64, device="musa")
        digits = [torch.full((1,), float(digit), dtype=torch.float64, device="musa") for digit in (1, 2, 3)]
        torch.musa.synchronize()
        first, second = torch.musa.Stream(), torch.musa.Stream()
        for digit, stream in zip(digits, (first, second, first), strict=True):
            with torch.musa.stream(stream):
                torch.add(digit, number, alpha=10, out=number)
        torch.musa.synchronize()
        return float(number.item())

    plain_machine.reset(schedule="directed")
    assert append() == 213
    seen = set()
    for seed in range(1, 12):
        plain_machine.reset(schedule="directed", seed=seed)
        seen.add(append())
    assert seen == {123, 132, 213}


@pytest.mark.parametrize("program", [lambda: _produce_and_consume(waits=False) == [4, 4], lambda: _overwrite() == [2, 2]])
def test_seeded_finds_it_within_a_few_seeds(plain_machine: fakes.Machine, program: Callable[[], bool]) -> None:
    found = []
    for seed in range(60):
        plain_machine.reset(schedule="seeded", seed=seed)
        found.append(not program())
    assert any(found[:10])
    assert 10 <= sum(found) <= 55


def test_a_seed_is_an_order(plain_machine: fakes.Machine) -> None:
    orders: dict[int, Any] = {}
    for seed in (0, 1, 2, 3, 0, 1, 2, 3):
        plain_machine.reset(schedule="seeded", seed=seed)
        _produce_and_consume(waits=False)
        decisions = dict(plain_machine.scheduler.policy.decisions)  # type: ignore[attr-defined]
        assert orders.setdefault(seed, decisions) == decisions
    # The very numbers: they must not depend on the machine that this runs on.
    policy = Seeded(7)
    queue: Any = "any queue"
    holds = [policy.hold(_launch_stub(number, queue)) for number in range(12)]
    assert [HELD if hold == HELD else hold for hold in holds] == EXPECTED_HOLDS


def _launch_stub(number: int, queue: Any) -> Any:
    class Stub:
        pass

    stub: Any = Stub()
    stub.number, stub.queue = number, queue
    return stub


def test_a_failing_order_can_be_recorded_and_replayed(plain_machine: fakes.Machine) -> None:
    for seed in range(40):
        plain_machine.reset(schedule="seeded", seed=seed)
        values = _produce_and_consume(waits=False)
        decisions = plain_machine.scheduler.policy.decisions  # type: ignore[attr-defined]
        for _ in range(2):
            plain_machine.reset(schedule=Recorded(decisions))
            assert str(_produce_and_consume(waits=False)) == str(values)


def test_all_zeros_is_the_order_of_issue(plain_machine: fakes.Machine) -> None:
    for policy in (Recorded(), Drawn(lambda: 0)):
        plain_machine.reset(schedule=policy)
        assert _produce_and_consume(waits=False) == [4, 4]
        assert policy.decisions == {}
    plain_machine.reset(schedule=Drawn(lambda: 8))
    assert math.isnan(_produce_and_consume(waits=False)[0])


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded", "directed"])
def test_polling_ends(plain_machine: fakes.Machine, schedule: str) -> None:
    plain_machine.reset(schedule=schedule, seed=3)
    tensor = torch.ones(3, device="musa")
    for _ in range(5):
        tensor = tensor + 1
    event = torch.musa.current_stream().record_event()
    answers = [event.query()]
    while not answers[-1]:
        answers.append(event.query())
    assert len(answers) <= 8
    if schedule == "lazy":
        assert answers[0] is False
    torch.musa.synchronize()
    assert torch.musa.current_stream().query()


@pytest.mark.parametrize("schedule", ["lazy", "directed"])
def test_pinned_memory_is_read_when_the_copy_runs(plain_machine: fakes.Machine, schedule: str) -> None:
    plain_machine.reset(schedule=schedule)
    pinned = torch.ones(4).pin_memory()
    early = pinned.to("musa", non_blocking=True)
    pinned.fill_(9)
    assert early.tolist() == [9] * 4
    pageable = torch.ones(4)
    copied = pageable.to("musa", non_blocking=True)
    pageable.fill_(9)
    assert copied.tolist() == [1] * 4
    blocking = pinned.to("musa")
    pinned.fill_(3)
    assert blocking.tolist() == [9] * 4


@pytest.mark.parametrize("schedule", ["lazy", "directed"])
def test_the_host_sees_a_non_blocking_result_only_after_waiting(plain_machine: fakes.Machine, schedule: str) -> None:
    plain_machine.reset(schedule=schedule)
    device = torch.full((4,), 7.0, device="musa")
    target = torch.zeros(4).pin_memory()
    target.copy_(device, non_blocking=True)
    fresh = device.to("cpu", non_blocking=True)
    assert fresh.is_pinned()
    assert target.tolist() == [0] * 4
    torch.musa.synchronize()
    assert target.tolist() == fresh.tolist() == [7] * 4


def test_random_numbers_do_not_depend_on_the_order(plain_machine: fakes.Machine) -> None:
    def draw() -> list[Any]:
        torch.musa.manual_seed(5)
        first, second = torch.musa.Stream(), torch.musa.Stream()
        with torch.musa.stream(first):
            a = torch.rand(5, device="musa")
            b = torch.nn.functional.dropout(torch.ones(20, device="musa"), 0.4)
        with torch.musa.stream(second):
            c = torch.randn(3, 2, device="musa")
            d = torch.empty(6, device="musa").bernoulli_(0.3)
            e = torch.bernoulli(torch.full((6,), 0.5, device="musa"))
            f = torch.randperm(9, device="musa")
            g = torch.poisson(torch.full((4,), 3.0, device="musa"))
            h = torch.multinomial(torch.ones(8, device="musa"), 5)
            i = torch.normal(torch.zeros(4, device="musa"), torch.ones(4, device="musa"))
        torch.musa.synchronize()
        return [tensor.tolist() for tensor in (a, b, c, d, e, f, g, h, i)] + [torch.musa.get_rng_state().tolist()]

    expected = draw()
    for schedule, seed in [("lazy", 0), ("directed", 0), *[("seeded", seed) for seed in range(5)]]:
        plain_machine.reset(schedule=schedule, seed=seed)
        assert draw() == expected


def test_freed_memory_is_poisoned_in_the_order_of_its_stream(plain_machine: fakes.Machine) -> None:
    plain_machine.reset(schedule="lazy")
    other = torch.musa.Stream()
    first = torch.ones(4, device="musa")
    torch.musa.synchronize()
    with torch.musa.stream(other):
        seen = first + 1
    del first  # nobody said that the other stream uses it
    second = torch.full((4,), 3.0, device="musa")
    assert second.tolist() == [3] * 4
    torch.musa.synchronize()
    assert seen.tolist() != [2] * 4


def test_record_stream_keeps_it(plain_machine: fakes.Machine) -> None:
    plain_machine.reset(schedule="lazy")
    other = torch.musa.Stream()
    first = torch.ones(4, device="musa")
    torch.musa.synchronize()
    with torch.musa.stream(other):
        seen = first + 1
    first.record_stream(other)
    del first
    second = torch.full((4,), 3.0, device="musa")
    assert second.tolist() == [3] * 4
    torch.musa.synchronize()
    assert seen.tolist() == [2] * 4


def test_a_failing_kernel_is_told_at_the_next_wait_and_from_then_on(plain_machine: fakes.Machine) -> None:
    plain_machine.reset(schedule="lazy")
    table = torch.ones(3, device="musa")
    wrong = torch.full((1,), 7, device="musa")
    table[wrong]
    with pytest.raises(RuntimeError, match=r"device 0 failed in aten::index .*out of bounds"):
        torch.musa.synchronize()
    with pytest.raises(RuntimeError, match="until the machine is reset"):
        torch.ones(3, device="musa")
    torch.ones(3, device="musa:1")
    plain_machine.reset(schedule="lazy")
    assert torch.ones(3, device="musa").sum().item() == 3


def test_simulated_time_does_not_depend_on_the_order(plain_machine: fakes.Machine) -> None:
    def measure() -> list[float]:
        start, middle, end = (torch.musa.Event(enable_timing=True) for _ in range(3))
        tensor = torch.ones(1000, device="musa")
        start.record()
        tensor = tensor + 1
        middle.record()
        torch.musa._sleep(3_000_000)
        end.record()
        torch.musa.synchronize()
        return [start.elapsed_time(middle), middle.elapsed_time(end), start.elapsed_time(end)]

    plain_machine.reset(schedule="lazy")
    expected = measure()
    assert 0 < expected[0] < expected[1] and expected[1] >= 3
    for seed in range(4):
        plain_machine.reset(schedule="seeded", seed=seed)
        assert measure() == expected


def test_an_order_is_refused_where_it_is_none(plain_machine: fakes.Machine) -> None:
    with pytest.raises(ValueError, match="legal schedules: directed, eager, lazy, seeded"):
        plain_machine.reset(schedule="backwards")
    with pytest.raises(ValueError, match="hold"):
        plain_machine.reset(schedule=object())  # type: ignore[arg-type]
    assert isinstance(Lazy().decisions, dict)


EXPECTED_HOLDS = [0, 0, 3, 3, 3, 1, 0, 0, 0, 0, 0, 3]
