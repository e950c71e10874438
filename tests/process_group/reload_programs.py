"""What single ranks do in the tests of reloadable groups; each function is one rank's program."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rank_worlds import TIMEOUT

from harness.errors import ProcessGroupError
from harness.process_group import ProcessGroupReloader


def start(rank: int, size: int, folder: Path, name: str = "store", **keywords: Any) -> ProcessGroupReloader:
    """A reloader whose WORLD is gloo over a file store."""
    reloader = ProcessGroupReloader()
    store = dist.FileStore(str(folder / name), size)
    reloader.init_process_group(
        keywords.pop("backend", "gloo"), store=store, rank=rank, world_size=size, timeout=TIMEOUT, **keywords
    )
    return reloader


_communicated: list[torch.Tensor] = []
"""Kept until the groups are gone: torch 2.7 ends gloo's thread while it holds Python's lock, which that thread needs to drop a tensor that
nobody else holds."""


def total(group: Any, rank: int) -> int:
    """The sum of 10 to the power of the rank over a group."""
    tensor = torch.tensor([10**rank])
    _communicated.append(tensor)
    dist.all_reduce(tensor, group=group)
    return int(tensor.item())


def idempotent(rank: int, size: int, folder: Path) -> list[int]:
    """Everything twice, and before and after its time."""
    reloader = ProcessGroupReloader()
    reloader.reload_process_groups()
    reloader.destroy_process_groups()
    reloader = start(rank, size, folder)
    reloader.reload_process_groups()
    group = reloader.new_group(list(range(size)))
    found = [reloader.generation]
    for _ in range(2):
        reloader.destroy_process_groups()
        found.append(reloader.generation)
    for _ in range(2):
        reloader.reload_process_groups()
        found.append(reloader.generation)
    found.append(total(group, rank))
    dist.destroy_process_group()
    reloader.destroy_process_groups()
    reloader.reload_process_groups()
    return found


def foreign_world(rank: int, size: int, folder: Path) -> list[Any]:
    """WORLD and a group that PyTorch made before any reloader was there."""
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), size), rank=rank, world_size=size, timeout=TIMEOUT)
    raw = dist.new_group([0, 1], timeout=timedelta(seconds=10), group_desc="before")
    reloader = ProcessGroupReloader()
    found: list[Any] = []
    try:
        reloader.destroy_process_groups()
    except RuntimeError as error:
        found.append(str(error))
    early = reloader.register_group(raw, [0, 1], timeout=timedelta(seconds=10), group_desc="before")
    late = reloader.new_group([0, size - 1])
    for _ in range(2):
        reloader.destroy_process_groups()
        reloader.reload_process_groups()
        found += [total(group, rank) for ranks, group in (([0, 1], early), ([0, size - 1], late)) if rank in ranks]
        found.append(total(None, rank))
    return [*found, str(dist.distributed_c10d._get_default_timeout(dist.Backend("gloo")) > TIMEOUT)]


def one_group_gone(rank: int, size: int, folder: Path) -> list[Any]:
    """A group that its members destroy for good is not built again; the ones made later are."""
    reloader = start(rank, size, folder)
    gone = reloader.new_group([0, 1])
    kept = reloader.new_group([0, size - 1])
    dist.barrier()  # `new_group` returns on a rank before the others have it, and one that destroys it then breaks their making it
    if rank in (0, 1):
        dist.destroy_process_group(gone)
    reloader.destroy_process_groups()
    reloader.reload_process_groups()
    error = ""
    if rank in (0, 1):
        try:
            gone.allreduce([torch.ones(1)])  # dist.all_reduce refuses a group that PyTorch does not know before the handle can
        except RuntimeError as refused:
            error = str(refused)
    return [len(reloader.groups), total(kept, rank) if rank in (0, size - 1) else None, error]


def destroyed_between(rank: int, size: int, folder: Path) -> list[Any]:
    """A group that is destroyed for good while all are destroyed."""
    reloader = start(rank, size, folder)
    gone, kept = reloader.new_group([0, 1]), reloader.new_group([1, 0])
    reloader.destroy_process_groups()
    if rank in (0, 1):
        dist.destroy_process_group(gone)
    reloader.reload_process_groups()
    return [total(kept, rank), len(reloader.groups)]


def made_between(rank: int, size: int, folder: Path) -> list[Any]:
    """A group of PyTorch's own while the others are destroyed, and a group of which only some ranks know before it."""
    reloader = start(rank, size, folder)
    group, _ = reloader.new_group([0, 1, 2]), reloader.new_group([0])
    reloader.destroy_process_groups()
    own = dist.new_group([0, 2])
    found: list[Any] = [total(own, rank) if rank in (0, 2) else None, dist.get_process_group_ranks(group)]
    try:
        reloader.reload_process_groups()
    except ProcessGroupError as error:
        found.append(str(error))
    if rank in (0, 2):
        dist.destroy_process_group(own)
    reloader.reload_process_groups()
    return [*found, total(group, rank)]


def called_by_one(rank: int, size: int, folder: Path) -> str:
    """Rank 0 alone destroys, while the others are gone."""
    reloader = start(rank, size, folder)
    reloader.new_group(list(range(size)))
    if rank == 0:
        try:
            reloader.destroy_process_groups()
        except ProcessGroupError as error:
            return str(error)
    return ""


def local_groups(rank: int, size: int, folder: Path) -> int:
    """Groups that only their members make."""
    reloader = start(rank, size, folder)
    half = [0, 1] if rank < 2 else [2, 3]
    group = reloader.new_group(half, use_local_synchronization=True)
    reloader.new_group([9], use_local_synchronization=True) if rank == 9 else None
    for _ in range(2):
        reloader.destroy_process_groups()
        reloader.reload_process_groups()
    return total(group, rank)


def different_groups(rank: int, size: int, folder: Path) -> list[Any]:
    """Ranks that disagree find out before anything is changed."""
    reloader = start(rank, size, folder)
    group = reloader.new_group([0, 1], group_desc=f"of rank {rank}")
    found: list[Any] = []
    try:
        reloader.destroy_process_groups()
    except RuntimeError as error:
        found.append(str(error))
    return [*found, total(group, rank)]


def forked(rank: int, size: int, folder: Path) -> list[Any]:
    """A child forked from a rank leaves its parent's groups alone, says so, and can have a world of its own."""
    reloader = start(rank, size, folder)
    group = reloader.new_group(list(range(size)))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        try:
            reloader.destroy_process_groups()
            reloader.reload_process_groups()
            for call in (lambda: dist.all_reduce(torch.ones(1), group=group), lambda: reloader.new_group([0])):
                try:
                    call()
                except RuntimeError as error:
                    said.append(str(error))
            reloader.abandon_process_groups()
            reloader.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT)
            own = reloader.new_group([0])
            reloader.destroy_process_groups()
            reloader.reload_process_groups()
            said.append(str(total(own, 0)))
        except BaseException as error:  # noqa: BLE001 - the parent reports it
            said.append(repr(error))
        finally:
            os.write(write_end, "\n".join(said).encode())
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answers:
        said = answers.read().splitlines()
    os.waitpid(child, 0)
    reloader.destroy_process_groups()
    reloader.reload_process_groups()
    return [said, total(group, rank)]


def everything_else_works(rank: int, size: int, folder: Path) -> list[str]:
    """Each way in which PyTorch uses a group, on a handle, after a reload."""
    import torch.distributed._functional_collectives as functional

    reloader = start(rank, size, folder)
    group = reloader.new_group([0, 1], group_desc="pair")
    reloader.destroy_process_groups()
    reloader.reload_process_groups()
    wrong = []

    def expect(what: str, found: Any, due: Any) -> None:
        if found != due:
            wrong.append(f"{what}: {found} instead of {due}")

    mine = torch.tensor([float(rank + 1)])
    both = [torch.zeros(1), torch.zeros(1)]
    dist.all_gather(both, mine, group=group)
    expect("all_gather", [int(t) for t in both], [1, 2])
    expect("functional all_reduce", float(functional.all_reduce(mine, "sum", group).wait()), 3.0)
    expect("functional all_gather", functional.all_gather_tensor(mine, 0, group).tolist(), [1.0, 2.0])
    sent = mine.clone()
    dist.broadcast(sent, 1, group=group)
    expect("broadcast", float(sent), 2.0)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    expect("all_gather_object", objects, [{"rank": 0}, {"rank": 1}])
    received = torch.zeros(1)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, mine, 1 - rank, group), dist.P2POp(dist.irecv, received, 1 - rank, group)]
    )
    for work in works:
        work.wait()
    expect("batched point-to-point", float(received), float(2 - rank))
    work = dist.all_reduce(sent, group=group, async_op=True)
    work.wait()
    expect("asynchronous all_reduce", float(sent), 4.0)
    dist.barrier(group=group)
    dist.monitored_barrier(group=group)
    mesh = dist.device_mesh.DeviceMesh.from_group(group, "cpu")
    expect("device mesh", mesh.get_group() is group, True)
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1), process_group=group.process_group)
    module(torch.ones(1, 2)).sum().backward()
    return wrong


def other_transport(rank: int, size: int, folder: Path) -> list[Any]:
    """WORLD over a transport for one device only, so that control traffic needs a group of its own; options are replayed."""
    seen: list[Any] = []

    class Options:
        def __init__(self, level: int) -> None:
            self.level = level

    def create(given: Any, options: Any) -> Any:
        seen.append([list(given.global_ranks_in_group), given.group_rank, options and options.level, given.timeout.total_seconds()])
        if options is not None:
            options.level = -1
        return dist.ProcessGroupGloo(given.store, given.group_rank, given.group_size, timeout=given.timeout)

    dist.Backend.register_backend("strangeccl", create, extended_api=True, devices=["cuda"])
    reloader = start(rank, size, folder, backend="strangeccl", pg_options=Options(7))
    options = Options(3)
    group = reloader.new_group([1, 0], pg_options=options, timeout=timedelta(seconds=10), backend="cpu:strangeccl,cuda:strangeccl")
    first = list(seen)
    options.level = 5
    for _ in range(2):
        seen.clear()
        reloader.destroy_process_groups()
        reloader.reload_process_groups()
        assert seen == first, (seen, first)
    return [first, total(group, rank), str(dist.get_backend())]


def cycles_alone(rank: int, size: int, folder: Path) -> dict[str, Any]:
    """Cycles in a world of one."""
    reloader = start(rank, size, folder)
    group, generations, wrong = reloader.new_group([0]), [0], []
    for _ in range(3):
        reloader.destroy_process_groups()
        generations.append(reloader.generation)
        reloader.reload_process_groups()
        generations.append(reloader.generation)
        wrong += [] if total(group, rank) == 1 else ["alone"]
    return {"generations": generations, "wrong": wrong}
