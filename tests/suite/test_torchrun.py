"""The suite under PyTorch's own launcher, with two agents on this host."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

_LIMIT = 240  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(ranks_of_each: int, *arguments: str) -> list[tuple[int, str]]:
    """The exit code and the output of each of two agents."""
    port = free_port()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={ranks_of_each}"]
    agents = [
        subprocess.Popen(
            [
                *launcher,
                f"--node-rank={agent}",
                "--master-addr=127.0.0.1",
                f"--master-port={port}",
                "-m",
                "conformance",
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        for agent in range(2)
    ]
    try:
        outputs = [agent.communicate(timeout=_LIMIT)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
    return [(agent.returncode, output) for agent, output in zip(agents, outputs, strict=True)]


def test_two_agents_run_the_suite(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    ends = torchrun(2, "--backend=cpu", "--effort=quick", "-k", "PGL-5 or PGL-8", f"--results={results}")
    assert [code for code, _ in ends] == [0, 0], "\n".join(output for _, output in ends)
    document = json.loads(results.read_text())
    assert document["run"]["ranks"] == 4
    assert document["run"]["agents"] == 2
    outcomes = {clause["id"]: clause["outcome"] for clause in document["clauses"]}
    assert outcomes["PGL-5"] == outcomes["PGL-8"] == "pass"
    assert "test session starts" not in ends[1][1]


@pytest.mark.thorough
def test_a_failing_run_fails_on_every_agent(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    fault = "--fault=pgl-second-destroy-raises"
    ends = torchrun(1, "--backend=fake-musa", fault, "-k", "PGL-5 or VIS-4", f"--results={results}")
    assert all(code != 0 for code, _ in ends), "\n".join(output for _, output in ends)
    assert "Invalid process group specified" in ends[0][1]
    outcomes = {clause["id"]: clause["outcome"] for clause in json.loads(results.read_text())["clauses"]}
    assert (outcomes["PGL-5"], outcomes["VIS-4"]) == ("fail", "pass")
