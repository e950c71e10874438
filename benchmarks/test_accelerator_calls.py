"""What a call through the adapter costs, beside the direct call of the vendor's namespace. Goal: at most twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

import fakes
from harness.accelerator.musa import MUSAAccelerator


@pytest.fixture(scope="module")
def accelerator() -> Iterator[MUSAAccelerator]:
    machine = fakes.install("musa")
    adapter = MUSAAccelerator()
    adapter.set_device(1)
    yield adapter
    machine.uninstall()


@pytest.mark.benchmark(group="current_device")
def test_peer_torch_musa_current_device(benchmark: BenchmarkFixture, accelerator: MUSAAccelerator) -> None:
    benchmark(torch.musa.current_device)


@pytest.mark.benchmark(group="current_device")
def test_adapter_current_device(benchmark: BenchmarkFixture, accelerator: MUSAAccelerator) -> None:
    benchmark(accelerator.current_device)


@pytest.mark.benchmark(group="device_name")
def test_adapter_device_name(benchmark: BenchmarkFixture, accelerator: MUSAAccelerator) -> None:
    benchmark(accelerator.device_name, "musa:1")
