"""The smallest thing that works where a capability is declared (CAP-2).

For: finding a declared capability that is not there before the area's own checks do, and also for capabilities whose area has
none yet. Not for: proving an area; that is what its clauses do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from conformance.accelerator_access import device_type_of, method
from conformance.checking import require
from harness.accelerator.capabilities import Capability

Demonstration = Callable[[Any], None]


def demonstrate(accelerator: Any, capability: Capability) -> bool:
    """Do the smallest thing of a declared capability on the current device; False where only the area's own clause can.

    Raises:
        ClauseViolation or any error: it does not work.
    """
    demonstration = DEMONSTRATIONS.get(capability)
    if demonstration is None:
        return False
    demonstration(accelerator)
    return True


def _amp(accelerator: Any) -> None:
    a = torch.ones(2, 2, device=accelerator.device())
    with method(accelerator, "autocast")():
        dtype = (a @ a).dtype
    due = torch.get_autocast_dtype(device_type_of(accelerator))
    require(dtype == due, f"a matrix product inside autocast has dtype {dtype}; due was {due}")


def _computes_in(dtype: torch.dtype) -> Demonstration:
    def compute(accelerator: Any) -> None:
        total = torch.ones(3, dtype=dtype, device=accelerator.device()).sum()
        require(total.dtype == dtype and total.item() == 3, f"1 + 1 + 1 in {dtype} is {total.item()} in {total.dtype}")

    return compute


def _streams(accelerator: Any) -> None:
    require(method(accelerator, "current_stream")() is not None, "current_stream() is None")
    stream = method(accelerator, "new_stream")()
    before = accelerator.current_stream()
    with method(accelerator, "stream")(stream):
        require(accelerator.current_stream() == stream, "inside stream(s), current_stream() is another stream")
        value = torch.ones(2, device=accelerator.device()).sum()
    require(accelerator.current_stream() == before, "after stream(s), current_stream() is not the one before")
    method(accelerator, "synchronize")()
    require(value.item() == 2, f"1 + 1 on a new stream is {value.item()}")


def _events(accelerator: Any) -> None:
    event = method(accelerator, "new_event")()
    torch.ones(2, device=accelerator.device()).sum()
    event.record()
    event.synchronize()
    require(event.query() is True, f"after synchronize(), query() is {event.query()!r}")


def _event_timing(accelerator: Any) -> None:
    first, second = (method(accelerator, "new_event")(enable_timing=True) for _ in range(2))
    first.record()
    second.record()
    second.synchronize()
    elapsed = first.elapsed_time(second)
    require(elapsed >= 0, f"elapsed_time of two events in order is {elapsed!r}")


def _rng(accelerator: Any) -> None:
    device = accelerator.device()
    method(accelerator, "manual_seed")(7)
    seed = method(accelerator, "initial_seed")()
    require(seed == 7, f"after manual_seed(7), initial_seed() is {seed!r}")
    state = method(accelerator, "get_rng_state")()
    drawn = torch.rand(4, device=device).cpu()
    method(accelerator, "set_rng_state")(state)
    again = torch.rand(4, device=device).cpu()
    require(torch.equal(drawn, again), f"after set_rng_state the draws are {again.tolist()}; due were {drawn.tolist()}")


def _device_generator(accelerator: Any) -> None:
    device = accelerator.device()
    actual = torch.Generator(device=device).device
    require(actual == device, f"torch.Generator(device={str(device)!r}) is on {actual}")


def _device_memory(accelerator: Any) -> None:
    free, total = method(accelerator, "mem_get_info")()
    require(0 <= free <= total and total > 0, f"mem_get_info() is {(free, total)}")
    before = method(accelerator, "memory_allocated")()
    held = torch.ones(1 << 12, device=accelerator.device())
    grown = accelerator.memory_allocated() - before
    require(grown >= held.numel() * 4, f"a tensor of {held.numel() * 4} bytes raised memory_allocated() by {grown}")
    allocated, reserved = accelerator.memory_allocated(), method(accelerator, "memory_reserved")()
    require(allocated <= reserved <= total, f"allocated {allocated}, reserved {reserved}, total {total}")


def _peak_memory(accelerator: Any) -> None:
    method(accelerator, "reset_peak_memory_stats")()
    for name in ("allocated", "reserved"):
        peak, now = method(accelerator, f"max_memory_{name}")(), method(accelerator, f"memory_{name}")()
        require(peak >= now >= 0, f"max_memory_{name}() is {peak}, below memory_{name}() {now}")


def _oom_observer(accelerator: Any) -> None:
    answer = method(accelerator, "attach_oom_observer")(_ignore)
    require(answer is True, f"attach_oom_observer answered {answer!r}")


def _ignore(_device: int, _asked: int, _limit: int, _free: int) -> None:
    """An observer that observes nothing; the same function each time, so that it is attached once."""


def _memory_snapshot(accelerator: Any) -> None:
    module = method(accelerator, "memory_module")()
    lacks = [name for name in ("_record_memory_history", "_snapshot") if not callable(getattr(module, name, None))]
    require(not lacks, f"memory_module() lacks {' and '.join(lacks)}")


def _pinned_memory(_accelerator: Any) -> None:
    pinned = torch.arange(3).pin_memory()
    require(pinned.is_pinned() and pinned.tolist() == [0, 1, 2], f"pin_memory() gave {pinned!r}, pinned: {pinned.is_pinned()}")


def _device_properties(accelerator: Any) -> None:
    properties = method(accelerator, "get_device_properties")()
    require(getattr(properties, "total_memory", 0) > 0, f"the properties {properties!r} have no positive total_memory")


def _deterministic(accelerator: Any) -> None:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        index = torch.tensor([0, 1, 0, 1], device=accelerator.device())
        source = torch.tensor([1e8, 1.0, -1e8, 3.0], device=accelerator.device())
        results = [torch.zeros(2, device=accelerator.device()).index_add_(0, index, source).tolist() for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(before)
    require(results[0] == results[1] == results[2], f"index_add_ under use_deterministic_algorithms gave {results}")


def _device_profiler(accelerator: Any) -> None:
    names = {str(activity).rpartition(".")[2].upper() for activity in torch.profiler.supported_activities()}  # type: ignore[no-untyped-call]
    due = {device_type_of(accelerator).upper(), "PRIVATEUSE1"}
    require(names & due, f"the profiler supports {sorted(names)}; due was one of {sorted(due)}")


DEMONSTRATIONS: Mapping[Capability, Demonstration] = {
    Capability.AMP: _amp,
    Capability.BF16: _computes_in(torch.bfloat16),
    Capability.FP16: _computes_in(torch.float16),
    Capability.STREAMS: _streams,
    Capability.EVENTS: _events,
    Capability.EVENT_TIMING: _event_timing,
    Capability.RNG: _rng,
    Capability.DEVICE_GENERATOR: _device_generator,
    Capability.DEVICE_MEMORY: _device_memory,
    Capability.PEAK_MEMORY: _peak_memory,
    Capability.OOM_OBSERVER: _oom_observer,
    Capability.MEMORY_SNAPSHOT: _memory_snapshot,
    Capability.PINNED_MEMORY: _pinned_memory,
    Capability.DEVICE_PROPERTIES: _device_properties,
    Capability.DETERMINISTIC: _deterministic,
    Capability.DEVICE_PROFILER: _device_profiler,
}
"""What is tried for each. The others need a process or a program of their own: GRF-1, IPC-1, ERR-1, MEM-14, SEL-10."""
