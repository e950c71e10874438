"""PGL-11: barriers and object collectives stay on the device that a rank's group is bound to."""

from __future__ import annotations

from hypothesis import given

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, not_checkable, require
from conformance.models.process_groups import Topology, some_groups
from conformance.rank_programs import process_group_devices as programs


@clause("PGL-11", examples=0.06)
@given(topology=some_groups)
def test_barriers_and_object_collectives_use_the_bound_device(backend: BackendUnderTest, topology: Topology) -> None:
    groups = topology.groups(backend.ranks.size)
    for rank, found in enumerate(backend.ranks.run(programs.barriers_and_objects, timeout=60, groups=groups)):
        if found is None:
            not_checkable("the transport of these ranks carries host tensors only, so that no group is bound to a device")
        mine = [sorted(ranks) for ranks in groups if rank in ranks]
        own = found["own"]
        require(
            set(found["bound"]) <= {own}, f"rank {rank}, bound to {own}: its groups say that they are bound to {found['bound']}"
        )
        require(
            found["barriers"] == [own] * (2 * len(mine)),
            f"rank {rank}, bound to {own}: {2 * len(mine)} barriers of groups asked for the devices {found['barriers']}",
        )
        due = [[ranks, ranks[0]] for ranks in mine] * 2
        require(found["objects"] == due, f"rank {rank}: object collectives gave {found['objects']}; due are {due}")
        if found["contexts"] is not None:
            before, after = found["contexts"]
            opened = set(after) - set(before)
            allowed = {int(own.partition(":")[2])}
            require(
                opened <= allowed, f"rank {rank}, bound to {own}: contexts were opened on the devices {sorted(opened - allowed)}"
            )
