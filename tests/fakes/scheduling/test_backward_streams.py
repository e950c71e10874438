"""Backward runs on the forward's device and stream; threads have their own."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import fakes


class _Noting(torch.autograd.Function):
    """Doubles, and notes where its backward runs."""

    seen: list[Any]

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        result = gradient * 2
        _Noting.seen.append((torch.musa.current_stream(result.device).stream_id, torch.musa.current_device()))
        return result


@pytest.fixture(params=[("eager", 0), ("lazy", 0), ("directed", 0), *[("seeded", seed) for seed in range(4)]], ids=str)
def machine(plain_machine: fakes.Machine, request: pytest.FixtureRequest) -> fakes.Machine:
    """A machine that detects races, under every schedule."""
    plain_machine.reset(schedule=request.param[0], seed=request.param[1], detect_races=True)
    _Noting.seen = []
    return plain_machine


def _use(value: Any) -> Any:
    return _Noting.apply(value)


def test_each_node_runs_on_the_stream_of_its_forward(machine: fakes.Machine) -> None:
    first, second = torch.musa.Stream("musa:1"), torch.musa.Stream("musa:1")
    leaf = torch.ones(3, device="musa:1", requires_grad=True)
    first.wait_stream(torch.musa.current_stream("musa:1"))
    with torch.musa.stream(first):
        middle = _use(leaf)
    second.wait_stream(first)
    with torch.musa.stream(second):
        loss = _use(middle).sum()
    torch.musa.current_stream("musa:1").wait_stream(second)
    loss.backward()
    assert _Noting.seen == [(second.stream_id, 1), (first.stream_id, 1)]
    assert torch.musa.current_device() == 0
    assert torch.musa.current_stream("musa:1").stream_id == 0
    # The caller's stream waited for the last gradient.
    assert leaf.grad is not None and (leaf.grad * 1).tolist() == [4] * 3


def test_a_hook_that_changes_the_stream_changes_it_for_its_node_only(machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    leaf = torch.ones(3, device="musa", requires_grad=True)
    result = _use(leaf)

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        side.wait_stream(torch.musa.current_stream())
        with torch.musa.stream(side):
            scaled = gradient * 3
        torch.musa.current_stream().wait_stream(side)
        gradient.record_stream(side)
        return scaled

    result.register_hook(hook)
    result.sum().backward()
    assert _Noting.seen == [(0, 0)]
    assert leaf.grad is not None and leaf.grad.tolist() == [6] * 3
    torch.musa.synchronize()


def test_threads_have_streams_and_backward_of_their_own(machine: fakes.Machine) -> None:
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        torch.musa.set_device(number % 2)
        stream = torch.musa.Stream()
        with torch.musa.stream(stream):
            leaf = torch.full((4,), float(number), device="musa", requires_grad=True)
            for _ in range(3):
                leaf.grad = None
                (leaf * leaf).sum().backward()
            assert leaf.grad is not None
            results[number] = (leaf.grad.tolist(), torch.musa.current_device(), torch.musa.current_stream() == stream)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert results == {number: ([2.0 * number] * 4, number % 2, True) for number in range(6)}
    assert torch.musa.current_device() == 0 and torch.musa.current_stream().stream_id == 0
