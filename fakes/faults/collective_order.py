"""Faults of a transport beyond its results: its place on streams, what it refuses, mixed groups and later generations.

For: COL-2 to COL-5. Not for: wrong results (`collectives.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from fakes import collective_checks, collective_work, transport
from fakes import collective_kernels as kernels
from fakes.collective_kernels import Collective
from fakes.faults.fault import Fault
from fakes.machine import Machine
from fakes.patching import Patches
from fakes.stream_state import StreamState
from harness.process_group.handle import ReloadableProcessGroup

_WaitForStream = Callable[[Machine, StreamState, StreamState], None]


def _is_communication(machine: Machine, stream: StreamState) -> bool:
    return stream in machine.device(stream.device_index).communication_streams.values()


def _ordering(
    change: Callable[[Machine, StreamState, StreamState, bool], tuple[StreamState, StreamState] | None],
) -> Callable[[Patches], None]:
    """A fault in which stream waits for which; `change` is told whether this is the issue, and gives None for no wait at all."""

    def apply(patches: Patches) -> None:
        right: _WaitForStream = collective_work.wait_for_stream

        def wait_for_stream(machine: Machine, earlier: StreamState, later: StreamState) -> None:
            pair = change(machine, earlier, later, _is_communication(machine, later))
            if pair is not None:
                right(machine, *pair)

        patches.set(collective_work, "wait_for_stream", wait_for_stream)

    return apply


def _default(machine: Machine, stream: StreamState) -> StreamState:
    return machine.device(stream.device_index).default_stream


def _wait_returns_at_once(patches: Patches) -> None:
    patches.set(collective_work.CollectiveWork, "wait", lambda self, timeout=None: True)  # noqa: ARG005


def _is_done_at_once(patches: Patches) -> None:
    """Neither kernel takes its turn on a stream."""

    def issue(kernel: Callable[[], None], *_: Any, **__: Any) -> None:
        kernel()

    patches.set(collective_work, "issue", issue)


def _groups_become_world(patches: Patches) -> None:
    right = ReloadableProcessGroup._attach

    def attach(self: Any, group: Any) -> None:
        is_rebuilt = hasattr(self, "_recorded")
        right(self, dist.group.WORLD if is_rebuilt and group.size() < dist.get_world_size() else group)

    patches.set(ReloadableProcessGroup, "_attach", attach)


def _later_worlds_shift_roots(patches: Patches) -> None:
    worlds = [0]
    right_transport, right_broadcast = transport.create_transport, kernels.broadcast

    def create_transport(group: Any, options: Any) -> Any:
        worlds[0] += 0 if dist.is_initialized() else 1
        return right_transport(group, options)

    def broadcast(group: Any, tensors: Any, root: int, *rest: Any) -> Collective:
        return right_broadcast(group, tensors, (root + (worlds[0] > 1)) % int(group.size()), *rest)

    patches.set(transport, "create_transport", create_transport)
    patches.set(kernels, "broadcast", broadcast)


def _every_device_by(chosen: Callable[[dict[str, Any]], Any]) -> Callable[[Patches], None]:
    """In a composite, one entry serves all devices."""

    def apply(patches: Patches) -> None:
        config: Any = dist.distributed_c10d.BackendConfig
        right = config.get_device_backend_map

        def get_device_backend_map(self: Any) -> dict[str, Any]:
            found: dict[str, Any] = right(self)
            return dict.fromkeys(found, chosen(found)) if len(found) == 2 else found

        patches.set(config, "get_device_backend_map", get_device_backend_map)

    return apply


def _any_size(patches: Patches) -> None:
    right = kernels.deliver

    def deliver(tensor: Any, staged: torch.Tensor) -> None:
        data = staged.reshape(-1).view(torch.uint8)
        whole = kernels.taken(tensor)
        count = min(whole.numel(), data.numel())
        whole[:count] = data[:count]
        right(tensor, whole)

    patches.set(kernels, "require_elements", lambda *_: None)
    patches.set(kernels, "deliver", deliver)


def _any_splits(patches: Patches) -> None:
    right = collective_checks.split_bytes

    def split_bytes(label: str, tensor: Any, splits: Sequence[int], size: int) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() else 1
        return right(label, tensor, splits if sum(splits) == rows else [], size)

    patches.set(kernels, "split_bytes", split_bytes)


def _host_tensors_too(patches: Patches) -> None:
    backends: Any = dist.Backend
    for name in ("mccl", "hccl"):
        if name in backends.backend_capability:
            patches.set_item(backends.backend_capability, name, ["cpu", *backends.backend_capability[name]])


def _waits_for_an_hour(patches: Patches) -> None:
    right = transport.create_transport

    def create_transport(group: Any, options: Any) -> Any:
        group.timeout = timedelta(hours=1)
        return right(group, options)

    patches.set(transport, "create_transport", create_transport)


_TABLE: tuple[tuple[str, tuple[str, ...], str, Callable[[Patches], None]], ...] = (
    ("col-wait-returns-at-once", ("COL-1",), "wait() returns before there is a result.", _wait_returns_at_once),
    (
        "col-wait-orders-nothing",
        ("COL-2",),
        "After wait() the current stream does not wait for the result.",
        _ordering(lambda _, earlier, later, is_issue: (earlier, later) if is_issue else None),
    ),
    (
        "col-wait-orders-the-default-stream",
        ("COL-2",),
        "wait() has the default stream wait, not the current one.",
        _ordering(lambda machine, earlier, later, is_issue: (earlier, later if is_issue else _default(machine, later))),
    ),
    (
        "col-starts-before-its-input",
        ("COL-2",),
        "A collective does not wait for the work that makes its input.",
        _ordering(lambda _, earlier, later, is_issue: None if is_issue else (earlier, later)),
    ),
    (
        "col-starts-behind-the-default-stream",
        ("COL-2",),
        "A collective waits for the default stream, not for the current one.",
        _ordering(lambda machine, earlier, later, is_issue: (_default(machine, earlier) if is_issue else earlier, later)),
    ),
    (
        "col-runs-on-the-host",
        ("COL-2",),
        "A collective takes its input at issue, whatever the stream has come to.",
        _is_done_at_once,
    ),
    ("col-groups-become-world", ("COL-3",), "After a reload every group is WORLD.", _groups_become_world),
    ("col-later-worlds-shift-roots", ("COL-3",), "After a reload a broadcast comes from the next rank.", _later_worlds_shift_roots),
    (
        "col-host-tensors-by-the-device",
        ("COL-4",),
        "In a mixed group the device's transport takes host tensors too.",
        _every_device_by(lambda found: next(b for d, b in found.items() if d != "cpu")),
    ),
    (
        "col-device-tensors-by-the-host",
        ("COL-4",),
        "In a mixed group the host's transport takes device tensors too.",
        _every_device_by(lambda found: found.get("cpu", "gloo")),
    ),
    ("col-any-size-accepted", ("COL-5",), "An output of the wrong size is filled as far as it goes.", _any_size),
    (
        "col-any-dtype-accepted",
        ("COL-5",),
        "An output of another dtype gets the input's bytes.",
        lambda patches: patches.set(kernels, "require_equal_dtypes", lambda *_: None),
    ),
    ("col-any-splits-accepted", ("COL-5",), "Splits that do not add up are taken as equal ones.", _any_splits),
    ("col-host-tensors-accepted", ("COL-5",), "The device's transport takes tensors of the host.", _host_tensors_too),
    (
        "col-detail-compares-nothing",
        ("COL-5",),
        "Under DETAIL ranks are not compared.",
        lambda patches: patches.set(dist.distributed_c10d, "_create_process_group_wrapper", lambda wrapped_pg, **_: wrapped_pg),
    ),
    ("col-timeout-forgotten", ("COL-5",), "The group's timeout does not reach the transport.", _waits_for_an_hour),
)
FAULTS: tuple[Fault, ...] = tuple(
    Fault(identity, clauses, summary, "derived", apply) for identity, clauses, summary, apply in _TABLE
)
"""Every fault of this area."""
