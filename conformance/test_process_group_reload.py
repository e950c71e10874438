"""PGL: process groups that are destroyed and rebuilt, on real ranks.

Groups come as families that frameworks make (tensor, pipeline, data, expert, embedding, singletons, any ranks), in any order that all ranks
share. What a sum must give is written out beside them. Not for: ranks that fail (`test_process_group_failures.py`).
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, require
from conformance.models.process_groups import Topology, some_groups, sum_over, topologies
from conformance.rank_programs import process_group_reload as programs

_LIMIT = 60.0  # seconds for an example; a collective that waits in vain raises long before
_rounds = st.lists(
    st.fixed_dictionaries({"destroys": st.integers(1, 2), "reloads": st.integers(1, 2), "further": st.integers(0, 1)}),
    min_size=1,
    max_size=3,
)


@clause("PGL-3", "PGL-4", examples=0.15, long=True)
@given(topology=topologies, before=st.integers(0, 2), rounds=_rounds, by_pytorch=st.booleans())
def test_collectives_are_right_after_every_cycle(
    backend: BackendUnderTest, topology: Topology, before: int, rounds: list[dict[str, int]], by_pytorch: bool
) -> None:
    size = backend.ranks.size
    groups = topology.groups(size)
    once = [{**made, "destroys": 1, "reloads": 1} for made in rounds]
    answers = backend.ranks.run(
        programs.cycles, timeout=_LIMIT, groups=groups, before=before, rounds=once, by_pytorch=by_pytorch or before > 0
    )
    for rank, seen in enumerate(answers):
        present = [list(ranks) for ranks in groups]
        for number, found in enumerate(seen):
            if number and rounds[number - 1]["further"]:
                present.append([0, size - 1])
            due = [sum_over(set(ranks)) if rank in ranks else None for ranks in present]
            require(
                found["sums"] == due,
                f"after {number} cycles, rank {rank} of {size} got the sums {found['sums']} over the groups {present}; due are {due}",
            )
            require(
                found["world"] == sum_over(range(size)),
                f"after {number} cycles, the sum over WORLD is {found['world']} on rank {rank}",
            )


@clause("PGL-5", "PGL-7", examples=0.1, long=True)
@given(topology=topologies, rounds=_rounds)
def test_both_are_idempotent_with_control_traffic_between(
    backend: BackendUnderTest, topology: Topology, rounds: list[dict[str, int]]
) -> None:
    size = backend.ranks.size
    answers = backend.ranks.run(
        programs.cycles, timeout=_LIMIT, groups=topology.groups(size), before=0, rounds=rounds, by_pytorch=False
    )
    for rank, seen in enumerate(answers):
        for number, (wanted, found) in enumerate(zip(rounds, seen[1:], strict=True)):
            for step, times, first in (
                ("destroyed", wanted["destroys"], 2 * number + 1),
                ("reloaded", wanted["reloads"], 2 * number + 2),
            ):
                require(
                    found[step] == [first] * times,
                    f"rank {rank}: groups that were {step} {times} times in a row left the generations {found[step]}; "
                    f"due are {[first] * times}",
                )
            require(
                found["control"] == sum_over(range(size)) and found["control backend"] == "gloo",
                f"rank {rank}: between destroy and reload, WORLD is {found['control backend']} and the sum over it {found['control']}; "
                f"due are gloo and {sum_over(range(size))}",
            )


@clause("PGL-1", examples=0.08)
@given(topology=some_groups, name=st.sampled_from(["", "mine", "Größe 1", "a b"]))
def test_a_group_that_is_gone_says_so(backend: BackendUnderTest, topology: Topology, name: str) -> None:
    groups = topology.groups(backend.ranks.size)
    for rank, seen in enumerate(backend.ranks.run(programs.a_destroyed_group, timeout=_LIMIT, groups=groups, name=name)):
        for found in seen:
            where = f"rank {rank}, group {found['ranks']}"
            require(
                found["is destroyed"] and "destroyed" in found["shown"], f"{where}: after destroy the handle shows {found['shown']}"
            )
            require(not found["is destroyed after"], f"{where}: after reload the handle still says that it is destroyed")
            for when in ("between", "after"):
                require(
                    found[when] == found["before"],
                    f"{where}: queries answer {found[when]} {'after' if when == 'after' else 'before'} the reload; at first "
                    f"they answered {found['before']}",
                )
            for what, error in found["errors"].items():
                _require_refusal(
                    error, f"{where}: {what} on the destroyed group", [name or str(sorted(found["ranks"])), "reload_process_groups"]
                )
            _require_refusal(found["new group"], f"rank {rank}: new_group between destroy and reload", ["reload_process_groups"])


def _require_refusal(error: list[str], what: str, words: list[str]) -> None:
    require(error, f"{what} was accepted")
    require("RuntimeError" in error[0].split(), f"{what} raised {error[0].split()[0]}, which is no RuntimeError: {error[1]}")
    for word in words:
        require(word in error[1], f"{what} raised an error that does not mention {word!r}: {error[1]}")


_seconds = st.sampled_from([None, 5.0, 7.5, 3600.0])
_levels = st.none() | st.integers(1, 5)


@st.composite
def _asked_groups(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "family": draw(st.sampled_from([(0,), (0, 1), (1, 0), (0, 1, 2, 3), (3, 1, 0)])),
            "timeout": draw(_seconds),
            "level": draw(_levels),
            "description": draw(st.sampled_from([None, "tensor", "data parallel"])),
            "backend": draw(st.sampled_from([None, programs.TRANSPORT, "gloo"])),
        }
        for _ in range(draw(st.integers(1, 3)))
    ]


@clause("PGL-2", examples=0.12, long=True)
@given(
    asked=_asked_groups(),
    world=st.fixed_dictionaries({"timeout": st.sampled_from([6.0, 9.0, 1800.0]), "level": _levels}),
    cycle_count=st.integers(1, 2),
)
def test_reload_replays_every_argument(
    backend: BackendUnderTest, asked: list[dict[str, Any]], world: dict[str, Any], cycle_count: int
) -> None:
    size = backend.ranks.size
    groups = [{**group, "ranks": list(dict.fromkeys(rank % size for rank in group.pop("family")))} for group in map(dict, asked)]
    answers = backend.ranks.run(programs.replays, timeout=_LIMIT, groups=groups, world=world, cycle_count=cycle_count)
    for rank, answer in enumerate(answers):
        first, *later = answer["generations"]
        mine = [group for group in groups if rank in group["ranks"]]
        _require_first_construction(rank, size, first, mine, world)
        for number, again in enumerate(later, start=1):
            for what, now, then in zip(("the transport was made with", "the handles answer"), again, first, strict=True):
                require(now == then, f"rank {rank}: after reload {number}, {what} {now}; at first {then}")


def _require_first_construction(rank: int, size: int, first: list[Any], mine: list[dict[str, Any]], world: dict[str, Any]) -> None:
    """What PyTorch gave the transport at first is what the program asked for."""
    made = first[0]
    watched = [{**world, "ranks": list(range(size))}, *(group for group in mine if group["backend"] != "gloo")]
    require(len(made) == len(watched), f"rank {rank}: {len(made)} transports were made for WORLD and {len(watched) - 1} groups")
    for group, (ranks, place, count, seconds, options) in zip(watched, made, strict=True):
        members = sorted(group["ranks"])
        due = [members, members.index(rank), len(members), group["level"]]
        found = [ranks or members, place, count, options and options[0]]
        require(
            found == due,
            f"rank {rank}: the group {group} was made with ranks, place, size, level of options {found}; due are {due}",
        )
        if group["timeout"] is not None:
            require(seconds == group["timeout"], f"rank {rank}: the group {group} was made with a timeout of {seconds} s")
