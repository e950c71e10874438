"""The catalogue of faults: each makes some check of the suite fail, by name.

For: proving that the suite can tell a wrong backend from a right one. Not for: the faults themselves; each area has its module,
which exports `FAULTS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fakes.faults import (
    autocast,
    capabilities,
    collective_order,
    collectives,
    crashes,
    device_copies,
    devices,
    events,
    memory,
    memory_reuse,
    memory_settings,
    operators,
    ordering,
    pinned_memory,
    process_group,
    process_group_creation,
    process_group_cycles,
    process_group_patch,
    process_group_reload,
    process_group_waiting,
    random_numbers,
    registry,
    routed_experts,
    routed_experts_layout,
    routing_replay,
    selection,
    serialization,
    stream_contexts,
    streams,
    threads,
    vendor_probes,
    visible_devices,
)
from fakes.faults.fault import Fault

__all__ = ["CATALOGUE", "Fault", "assemble"]


def assemble(*areas: Iterable[Fault]) -> Mapping[str, Fault]:
    """The faults of all areas by id, in the order given.

    Raises:
        ValueError: two faults share an id, or a fault names no clause.
    """
    catalogue: dict[str, Fault] = {}
    for fault in (fault for area in areas for fault in area):
        if fault.id in catalogue:
            raise ValueError(f"two faults are called {fault.id!r}; give one of them another id")
        if not fault.clauses:
            raise ValueError(f"fault {fault.id!r} names no clause that it breaks")
        catalogue[fault.id] = fault
    return MappingProxyType(catalogue)


CATALOGUE: Mapping[str, Fault] = assemble(
    autocast.FAULTS,
    capabilities.FAULTS,
    collective_order.FAULTS,
    collectives.FAULTS,
    crashes.FAULTS,
    device_copies.FAULTS,
    devices.FAULTS,
    memory.FAULTS,
    memory_reuse.FAULTS,
    memory_settings.FAULTS,
    events.FAULTS,
    operators.FAULTS,
    ordering.FAULTS,
    pinned_memory.FAULTS,
    process_group.FAULTS,
    process_group_creation.FAULTS,
    process_group_cycles.FAULTS,
    process_group_patch.FAULTS,
    process_group_reload.FAULTS,
    process_group_waiting.FAULTS,
    random_numbers.FAULTS,
    registry.FAULTS,
    routed_experts.FAULTS,
    routed_experts_layout.FAULTS,
    routing_replay.FAULTS,
    selection.FAULTS,
    serialization.FAULTS,
    stream_contexts.FAULTS,
    streams.FAULTS,
    threads.FAULTS,
    vendor_probes.FAULTS,
    visible_devices.FAULTS,
)
"""Every fault by id. Area modules are listed here explicitly, so that a missing one is an import error and not a smaller
catalogue."""
