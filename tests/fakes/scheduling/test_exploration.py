"""`explore` visits each class of orders once, on programs whose number of classes is known in closed form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch

import fakes
from fakes import explore
from fakes.errors import UnfinishedExplorationError


def _digits(count: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    number = torch.zeros(1, dtype=torch.float64, device="musa")
    digits = [torch.full((1,), float(digit + 1), dtype=torch.float64, device="musa") for digit in range(count)]
    torch.musa.synchronize()
    return number, digits


def _append(number: torch.Tensor, digit: torch.Tensor) -> None:
    """One kernel: number = 10 * number + digit, so that each order has its own result."""
    torch.add(digit, number, alpha=10, out=number)


def _appending(streams: int, kernels: int) -> Callable[[], float]:
    def program() -> float:
        number, digits = _digits(streams)
        for digit in digits:
            with torch.musa.stream(torch.musa.Stream()):
                for _ in range(kernels):
                    _append(number, digit)
        torch.musa.synchronize()
        return float(number.item())

    return program


@pytest.mark.parametrize(("streams", "kernels"), [(1, 4), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1)])
def test_streams_whose_kernels_all_conflict_have_the_multinomial_coefficient(
    plain_machine: fakes.Machine, streams: int, kernels: int
) -> None:
    expected = math.factorial(streams * kernels) // math.factorial(kernels) ** streams
    results = Counter(run.result for run in explore(_appending(streams, kernels)))
    assert len(results) == expected
    assert set(results.values()) == {1}


@pytest.mark.parametrize("streams", [1, 3, 8])
def test_streams_without_a_conflict_have_one_order(plain_machine: fakes.Machine, streams: int) -> None:
    def program() -> list[float]:
        number, digits = _digits(streams)
        sums = []
        for digit in digits:
            with torch.musa.stream(torch.musa.Stream()):
                sums.append((number + digit) * 2)
        torch.musa.synchronize()
        return [float(value) for value in sums]

    assert [run.result for run in explore(program)] == [[2.0 * (digit + 1) for digit in range(streams)]]


@pytest.mark.parametrize("readers", [1, 2, 3, 4])
def test_a_writer_runs_before_or_after_each_of_many_readers(plain_machine: fakes.Machine, readers: int) -> None:
    def program() -> tuple[float, ...]:
        number, digits = _digits(1)
        seen = []
        for _ in range(readers):
            with torch.musa.stream(torch.musa.Stream()):
                seen.append(number + 0)
        with torch.musa.stream(torch.musa.Stream()):
            _append(number, digits[0])
        torch.musa.synchronize()
        return tuple(float(value) for value in seen)

    results = Counter(run.result for run in explore(program))
    assert len(results) == 2**readers
    assert set(results.values()) == {1}


def test_waits_leave_one_order(plain_machine: fakes.Machine) -> None:
    def program() -> float:
        number, digits = _digits(3)
        before = torch.musa.current_stream()
        for digit in digits:
            stream = torch.musa.Stream()
            stream.wait_event(before.record_event())
            with torch.musa.stream(stream):
                _append(number, digit)
            before = stream
        torch.musa.synchronize()
        return float(number.item())

    assert [run.result for run in explore(program)] == [123]


def test_disjoint_slices_do_not_conflict_and_a_common_element_does(plain_machine: fakes.Machine) -> None:
    def program(first: slice, second: slice) -> Callable[[], list[float]]:
        def run() -> list[float]:
            numbers = torch.zeros(6, device="musa")
            torch.musa.synchronize()
            for part, value in ((first, 1.0), (second, 2.0)):
                with torch.musa.stream(torch.musa.Stream()):
                    numbers[part].fill_(value)
            torch.musa.synchronize()
            values: list[float] = numbers.tolist()
            return values

        return run

    assert len(list(explore(program(slice(0, 3), slice(3, 6))))) == 1
    assert len(list(explore(program(slice(0, 6, 2), slice(1, 6, 2))))) == 1
    assert len(list(explore(program(slice(0, 3), slice(2, 6))))) == 2


def test_the_host_may_wait_in_the_middle_and_go_by_what_it_read(plain_machine: fakes.Machine) -> None:
    def program() -> float:
        number, digits = _digits(3)
        first, second = torch.musa.Stream(), torch.musa.Stream()
        with torch.musa.stream(first):
            _append(number, digits[0])
        with torch.musa.stream(second):
            _append(number, digits[1])
            seen = number.item()
        if seen == 12:
            _append(number, digits[2])
        torch.musa.synchronize()
        return float(number.item())

    # 12 then 3; 21, or 2 when the host reads before the first stream ran, which then ends at 21 too.
    results = sorted(run.result or 0 for run in explore(program))
    assert set(results) == {123, 21}
    assert len(results) == 3


def test_an_order_in_which_freed_memory_is_overwritten_is_found(plain_machine: fakes.Machine) -> None:
    def program(recorded: bool) -> Callable[[], float]:
        def run() -> float:
            other = torch.musa.Stream()
            first = torch.ones(4, device="musa")
            torch.musa.synchronize()
            with torch.musa.stream(other):
                seen = first.sum()
            if recorded:
                first.record_stream(other)
            del first
            second = torch.full((4,), 5.0, device="musa")
            torch.musa.synchronize()
            return float(seen) + 0 * float(second[0])

        return run

    assert {run.result for run in explore(program(False))} == {4, 20}
    assert {run.result for run in explore(program(True))} == {4}


def test_a_failing_order_names_its_launches_and_the_error(plain_machine: fakes.Machine) -> None:
    def program() -> None:
        number, digits = _digits(1)
        with torch.musa.stream(torch.musa.Stream()):
            _append(number, digits[0])
        if number.item() == 0:
            raise KeyError("too early")

    runs = list(explore(program))
    assert sorted(str(run.error) for run in runs) == ["'too early'", "None"]
    failing = next(run for run in runs if run.error is not None)
    assert any("aten::add" in launch and "stream 1" in launch for launch in failing.order)


def test_too_many_orders_are_said_to_be(plain_machine: fakes.Machine) -> None:
    with pytest.raises(UnfinishedExplorationError, match="more than 5 runs"):
        list(explore(_appending(3, 2), most=5))
    assert plain_machine.settings.schedule == "eager"
    assert torch.ones(2, device="musa").tolist() == [1, 1]
