"""What it costs to collect the suite, beside importing torch. Goal: at most 1.5 × the import + 1 s."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.benchmark(group="start-up")
def test_peer_import_torch(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(_run, ("-c", "import torch"), rounds=5, warmup_rounds=1)


@pytest.mark.benchmark(group="start-up")
def test_collect_only(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(_run, ("-m", "pytest", "conformance", "--collect-only", "-q"), rounds=5, warmup_rounds=1)
