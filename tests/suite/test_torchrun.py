"""The suite under PyTorch's own launcher, with two agents on this host."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from process_tree import descendants

_LIMIT = 240  # seconds
_ALL_PROCESSES = 14
"""Four of torchrun, a follower beside pytest, a zygote, and a server and a rank of each."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_agents(ranks_of_each: int, *arguments: str, **environment: str) -> list[subprocess.Popen[str]]:
    """Two agents, each in a process group of its own."""
    port = free_port()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={ranks_of_each}"]
    return [
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
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            text=True,
            start_new_session=True,
        )
        for agent in range(2)
    ]


def torchrun(ranks_of_each: int, *arguments: str) -> list[tuple[int, str]]:
    """The exit code and the output of each of two agents."""
    return ends_of(start_agents(ranks_of_each, *arguments))


def ends_of(agents: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """The exit code and the output of each."""
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
    ends = torchrun(1, "--backend=fake-musa", fault, "--hypothesis-seed=0", "-k", "PGL-5 or VIS-4", f"--results={results}")
    assert all(code != 0 for code, _ in ends), "\n".join(output for _, output in ends)
    assert "Invalid process group specified" in ends[0][1]
    outcomes = {clause["id"]: clause["outcome"] for clause in json.loads(results.read_text())["clauses"]}
    assert (outcomes["PGL-5"], outcomes["VIS-4"]) == ("fail", "pass")


@pytest.mark.thorough
@pytest.mark.parametrize("interrupted", [(0, 1), (0,), (1,)])
def test_an_interrupt_ends_both_agents_and_leaves_nothing(interrupted: tuple[int, ...], tmp_path: Path) -> None:
    """As in a terminal: to every process of an agent."""
    agents = start_agents(2, "--backend=cpu", "-k", "PGL-3 or PGL-6", TMPDIR=str(tmp_path))
    try:
        deadline = time.monotonic() + _LIMIT
        while len(found := [process for agent in agents for process in descendants(agent.pid)]) < _ALL_PROCESSES:
            assert all(agent.poll() is None for agent in agents)
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for agent in interrupted:
            os.killpg(agents[agent].pid, signal.SIGINT)
    finally:
        ends = ends_of(agents)
    assert all(code != 0 for code, _ in ends), "\n".join(output for _, output in ends)
    said = "The run was interrupted" if 0 in interrupted else "is gone, and torchrun restarts none"
    assert said in ends[0][1], ends[0][1]
    while any(os.path.exists(f"/proc/{process}") for process in found):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("torchelastic_")] == []
