"""How many ranks a run has, or why none; and that ranks do not meet on a device."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rank_programs as programs

from conformance.backends import BackendChoice
from conformance.clauses import Tier
from conformance.errors import OptionError
from conformance.ranks import device_leases
from conformance.ranks.device_leases import lease_device
from conformance.ranks.errors import DeviceLeaseError
from conformance.ranks.plan import plan_ranks
from conformance.ranks.server import RANK_SERVER, SHARED_SERVER, preloaded
from conformance.shared_servers import SharedServer


def backend(device_type: str, devices: int, *, is_fake: bool = False, no_device_reason: str | None = None) -> Any:
    return SimpleNamespace(
        name=device_type,
        is_fake=is_fake,
        device_count=devices,
        no_device_reason=no_device_reason,
        accelerator=SimpleNamespace(device_type=device_type),
    )


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests may themselves run in several workers."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)


@pytest.mark.parametrize(("devices", "workers", "count"), [(16, 1, 8), (8, 1, 8), (8, 2, 4), (3, 1, 3), (2, 1, 2)])
def test_real_devices_are_shared_out(monkeypatch: pytest.MonkeyPatch, devices: int, workers: int, count: int) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(workers))
    plan = plan_ranks(None, backend("musa", devices))
    assert (plan.count, plan.lease_devices, plan.what_is_missing(Tier.MULTI_RANK)) == (count, True, "")
    assert "torchrun --nnodes=2" in plan.what_is_missing(Tier.MULTI_NODE)


def test_where_two_ranks_cannot_be_had_the_reason_is_said() -> None:
    assert plan_ranks(None, backend("musa", 1)).why_none == "needs two ranks; this run has 1 (1 device(s), 1 worker(s))"
    assert plan_ranks(1, backend("cpu", 1)).why_none == "needs two ranks; this run has 1 (--ranks)"
    assert plan_ranks(None, backend("musa", 0, no_device_reason="no driver")).why_none == "no device: no driver"


def test_more_ranks_than_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="--ranks=4: each rank needs a device of its own, and musa has 3"):
        plan_ranks(4, backend("musa", 3))
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    with pytest.raises(OptionError, match="--ranks=2 in each of 2 workers"):
        plan_ranks(2, backend("musa", 3))


def test_more_ranks_than_a_host_can_start_are_refused() -> None:
    for some in (backend("cpu", 1), backend("musa", 2, is_fake=True), backend("musa", 64)):
        assert plan_ranks(32, some).count == 32
        with pytest.raises(OptionError, match="--ranks=33: one host starts 32 ranks at most"):
            plan_ranks(33, some)


def test_ranks_of_a_simulated_machine_have_a_device_each() -> None:
    pool = plan_ranks(3, backend("musa", 2, is_fake=True)).pool(BackendChoice("fake-musa"))
    try:
        assert pool.run(programs.own_device) == ["musa:0", "musa:1", "musa:2"]
    finally:
        pool.close()


def test_a_fault_is_in_force_in_every_rank() -> None:
    pool = plan_ranks(2, backend("musa", 2, is_fake=True)).pool(BackendChoice("fake-musa", fault="pgn-substring-detection"))
    try:
        assert pool.run(programs.finds_an_accelerator_group, name="xnccl") == [True, True]
    finally:
        pool.close()


def test_two_ranks_never_have_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_leases, "_HELD", held := [])
    environment = {"MUSA_VISIBLE_DEVICES": f"test {os.getpid()}"}
    assert [lease_device("musa", 3, first=2, environment=environment) for _ in range(3)] == [2, 0, 1]
    assert lease_device("musa", 3, environment={"MUSA_VISIBLE_DEVICES": f"others {os.getpid()}"}) == 0
    with pytest.raises(DeviceLeaseError, match=r"all 3 device\(s\) of musa are leased"):
        lease_device("musa", 3, environment=environment)
    held[1].close()
    assert lease_device("musa", 3, environment=environment) == 0
    for holder in held:
        holder.close()


def test_many_pools_share_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    server = SharedServer(RANK_SERVER, path, socket.SOCK_SEQPACKET, preloaded(simulated=False))
    monkeypatch.setenv(SHARED_SERVER, str(path))
    pools = [plan_ranks(2, backend("cpu", 1)).pool(BackendChoice("cpu")) for _ in range(2)]
    processes = [process for pool in pools for process in pool.run(programs.process_id)]
    assert len(set(processes)) == 4
    assert [pool.run(programs.all_reduce, value=1) for pool in pools] == [[3, 3]] * 2
    for pool in pools:
        pool.close()
    server.close()
    assert not path.exists()
    for process in processes:
        programs.wait_until_gone(process)
