"""What an operator costs on a simulated device, beside PyTorch's `FakeTensorMode` for the same operator. Goal: at most a third."""

from __future__ import annotations

import timeit
from collections.abc import Iterator

import pytest
import torch
from measured_operators import OPERATORS
from pytest_benchmark.fixture import BenchmarkFixture
from torch._subclasses.fake_tensor import FakeTensorMode

import fakes

MOST = 1 / 3


@pytest.fixture(scope="module")
def device_tensor() -> Iterator[torch.Tensor]:
    machine = fakes.install("musa")
    yield torch.ones(4, 4, device="musa")
    machine.uninstall()


@pytest.fixture
def peer_tensor() -> Iterator[torch.Tensor]:
    with FakeTensorMode():
        yield torch.ones(4, 4)


@pytest.mark.parametrize("name", OPERATORS)
def test_simulated_device(benchmark: BenchmarkFixture, device_tensor: torch.Tensor, name: str) -> None:
    benchmark.group = name
    benchmark(OPERATORS[name], device_tensor)


@pytest.mark.parametrize("name", OPERATORS)
def test_peer_fake_tensor_mode(benchmark: BenchmarkFixture, peer_tensor: torch.Tensor, name: str) -> None:
    benchmark.group = name
    benchmark(OPERATORS[name], peer_tensor)


@pytest.mark.parametrize("name", OPERATORS)
def test_at_most_a_third_of_the_peer(device_tensor: torch.Tensor, name: str) -> None:
    def best(tensor: torch.Tensor) -> float:
        # Many short rounds: the best of them was not interrupted.
        return min(timeit.repeat(lambda: OPERATORS[name](tensor), number=20, repeat=60))

    ours = best(device_tensor)
    with FakeTensorMode():
        peer = best(torch.ones(4, 4))
    assert ours <= MOST * peer, f"{ours / 20 * 1e6:.1f} µs an operator, against {peer / 20 * 1e6:.1f} µs"
