"""How many ranks a run has, and of what kind.

For: turning `--ranks`, the backend and the launcher into a pool, or into the reason why there is none. Not for: starting ranks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conformance.clauses import Tier
from conformance.errors import OptionError
from conformance.ranks.local_pool import LocalRankPool
from conformance.ranks.pool import RankPool
from conformance.ranks.torchrun_pool import LaunchedRun, TorchrunRankPool

if TYPE_CHECKING:
    from conformance.backend_under_test import BackendUnderTest
    from conformance.backends import BackendChoice

_WITHOUT_DEVICES = 4
"""Ranks on simulated machines and on the CPU, which can have any number."""
_MOST = 8
_MOST_OF_A_HOST = 32
"""What one request to the server can surely start: each rank takes descriptors and a part of the packet."""
_WORKERS = "PYTEST_XDIST_WORKER_COUNT"


@dataclass(frozen=True)
class RankPlan:
    """`count` ranks; `why_none` says in words why checks that need ranks cannot run, and is empty where they can.

    `each_has_a_machine` is true where every rank simulates a machine of its own; `lease_devices` where ranks share the devices of a host.
    """

    count: int
    why_none: str
    each_has_a_machine: bool = False
    lease_devices: bool = False
    launched: LaunchedRun | None = None

    @property
    def spans_nodes(self) -> bool:
        """Whether the ranks belong to two agents of torchrun, on two hosts as a rule."""
        return self.launched is not None and self.launched.launch.agents > 1

    def what_is_missing(self, tier: Tier) -> str:
        """Why a check of the multi-rank or multi-node tier cannot run, as far as ranks are concerned; empty where it can."""
        if tier is Tier.MULTI_NODE and not self.why_none and not self.spans_nodes:
            return "needs ranks on two hosts, or of two agents, started by torchrun --nnodes=2 … -m conformance"
        return self.why_none

    def pool(self, choice: BackendChoice) -> RankPool:
        """The ranks, not started yet."""
        if self.each_has_a_machine:  # a rank r uses the r-th device of its own machine
            choice = replace(choice, devices=max(choice.devices or 1, self.count))
        if self.launched is not None:
            return TorchrunRankPool(self.launched, choice.as_data(), lease_devices=self.lease_devices)
        return LocalRankPool(self.count, choice.as_data(), lease_devices=self.lease_devices)


def plan_ranks(wanted: int | None, backend: BackendUnderTest, launched: LaunchedRun | None = None) -> RankPlan:
    """The ranks of a run for which `--ranks` said `wanted`, None where it was not given; `launched` is what torchrun started, if it did.

    Raises:
        OptionError: more ranks than devices or than a host can start, or not as many as torchrun started.
    """
    if backend.no_device_reason is not None:
        return RankPlan(0, f"no device: {backend.no_device_reason}")
    needs_device = not backend.is_fake and backend.accelerator.device_type != "cpu"
    if launched is not None:
        count = launched.launch.size
        if wanted not in (None, count):
            raise OptionError(f"--ranks={wanted}: torchrun started {count}; leave the option out")
        too_few = _too_few(count, "torchrun's --nnodes times --nproc-per-node")
        return RankPlan(count, too_few, backend.is_fake, needs_device, launched)
    if wanted is not None and wanted > _MOST_OF_A_HOST:
        raise OptionError(f"--ranks={wanted}: one host starts {_MOST_OF_A_HOST} ranks at most; torchrun starts more, on many hosts")
    if not needs_device:
        count = _WITHOUT_DEVICES if wanted is None else wanted
        return RankPlan(count, _too_few(count, "--ranks"), each_has_a_machine=backend.is_fake)
    devices = backend.device_count
    workers = int(os.environ.get(_WORKERS, "1"))
    if wanted is not None and wanted * workers > devices:
        shared = f" in each of {workers} workers (-n)" if workers > 1 else ""
        raise OptionError(f"--ranks={wanted}{shared}: each rank needs a device of its own, and {backend.name} has {devices}")
    count = min(devices // workers, _MOST) if wanted is None else wanted
    return RankPlan(count, _too_few(count, f"{devices} device(s), {workers} worker(s)"), lease_devices=True)


def _too_few(count: int, given: str) -> str:
    return "" if count >= 2 else f"needs two ranks; this run has {count} ({given})"
