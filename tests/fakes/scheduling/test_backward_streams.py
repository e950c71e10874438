"""Backward runs on the forward's device and stream; threads have their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
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


def _in_thread(work: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    thread.join(timeout=60)
    assert answers
    return answers[0]


def _on(stream: Any, work: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What `work` gives on a stream, for which the current one waits."""
    stream.wait_stream(torch.musa.current_stream(stream.device))
    with torch.musa.stream(stream):
        result = work()
    torch.musa.current_stream(stream.device).wait_stream(stream)
    result.record_stream(torch.musa.current_stream(stream.device))
    return result


def _tripled(tensor: torch.Tensor) -> torch.Tensor:
    torch._foreach_mul_([tensor], 3)
    assert tensor.grad_fn is not None
    tensor.grad_fn.register_hook(lambda *_: _Noting.seen.append((torch.musa.current_stream().stream_id, 0)))
    return tensor


def _backward(loss: torch.Tensor) -> Callable[[], Any]:
    """Backward on a stream of the calling thread's own; what is current before and after."""

    def work() -> Any:
        mine = torch.musa.Stream()
        mine.wait_stream(torch.musa.current_stream())
        with torch.musa.stream(mine):
            loss.backward()
            after = torch.musa.current_device(), torch.musa.current_stream() == mine
        torch.musa.current_stream().wait_stream(mine)
        torch.musa.synchronize()
        torch.musa.synchronize("musa:1")
        return after

    return work


def test_backward_of_another_thread_runs_on_the_forwards_streams(machine: fakes.Machine) -> None:
    first, second = torch.musa.Stream("musa:1"), torch.musa.Stream("musa:1")
    leaf = torch.ones(3, device="musa:1", requires_grad=True)
    middle = _on(first, lambda: _use(leaf))
    loss = _on(second, lambda: _use(middle).sum())
    assert _in_thread(_backward(loss)) == (0, True)
    assert _Noting.seen == [(second.stream_id, 1), (first.stream_id, 1)]
    assert leaf.grad is not None and leaf.grad.tolist() == [4] * 3


def test_each_thread_makes_a_part_of_the_graph(machine: fakes.Machine) -> None:
    """The two threads' nodes have the same numbers, so only the thread tells them apart."""
    streams = [torch.musa.Stream() for _ in range(4)]
    leaf = torch.ones(3, device="musa", requires_grad=True)
    values = [leaf]
    for number, stream in enumerate(streams):
        work = partial(_on, stream, partial(_use, values[-1]))
        # Two threads that begin have the same numbers in a row.
        values.append(_in_thread(work) if number < 3 else work())
    _in_thread(_backward(values[-1].sum()))
    assert _Noting.seen == [(stream.stream_id, 0) for stream in reversed(streams)]
    assert leaf.grad is not None and leaf.grad.tolist() == [16] * 3


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_thread_is_known_behind_host_tensors_and_after_writes(machine: fakes.Machine, elsewhere: bool) -> None:
    here, there = (_in_thread, lambda work: work()) if elsewhere else (lambda work: work(), _in_thread)
    one, two, three = (torch.musa.Stream() for _ in range(3))
    leaf = torch.ones(3, device="musa", requires_grad=True)
    on_host = here(lambda: _on(one, lambda: _use(leaf)).cpu()) * 5
    again = there(lambda: _on(two, lambda: _use(on_host.to("musa"))))
    written = here(lambda: _on(three, lambda: _use(_tripled(again))))
    loss = written.cpu().sum()
    _in_thread(_backward(loss))
    assert _Noting.seen == [(stream.stream_id, 0) for stream in (three, three, two, one)]
    assert leaf.grad is not None and leaf.grad.tolist() == [8 * 5 * 3] * 3


def test_a_second_backward_runs_on_the_first_ones_streams(machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    leaf = torch.full((3,), 2.0, device="musa", requires_grad=True)

    def forward() -> torch.Tensor:
        return (_use(leaf) ** 3).sum()

    loss = _on(side, forward)
    (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
    del _Noting.seen[:]
    nodes: list[Any] = []
    assert gradient.grad_fn is not None
    gradient.grad_fn.register_hook(lambda *_: nodes.append(torch.musa.current_stream().stream_id))
    gradient.sum().backward()
    assert set(nodes) == {side.stream_id}
    assert leaf.grad is not None and leaf.grad.tolist() == [8 * 6 * 2] * 3
    # What is made from here on is on the default stream again.
    del _Noting.seen[:]
    _use(leaf).sum().backward()
    assert _Noting.seen == [(0, 0)]


def test_a_graph_from_before_a_reset_runs_on_the_default_stream(machine: fakes.Machine) -> None:
    leaf = torch.ones(3, device="musa", requires_grad=True)
    loss = _in_thread(lambda: _on(torch.musa.Stream(), lambda: _use(leaf).sum()))
    torch.musa.synchronize()
    machine.reset()
    _in_thread(torch.musa.current_device)
    loss.backward()
    assert _Noting.seen == [(0, 0)]


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
