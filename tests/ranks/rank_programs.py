"""Programs for the tests of rank pools."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from conformance.ranks.rank_main import RankContext


def all_reduce(context: RankContext, value: int) -> int:
    """The sum of value + rank."""
    context.world()
    context.operation("all_reduce")
    tensor = torch.tensor([value + context.rank])
    dist.all_reduce(tensor)
    return int(tensor.item())


def process_id(_context: RankContext) -> int:
    return os.getpid()


def store_port(context: RankContext) -> int:
    context.new_store().set("key", "value")
    return context.stores.address[1]


def device_type(context: RankContext) -> str:
    return str(context.make_accelerator().device_type)


def own_device(context: RankContext) -> str:
    return str(context.own_device)


def finds_an_accelerator_group(_context: RankContext, name: str) -> bool:
    from harness.process_group import normalizer

    return normalizer.is_accelerator_backend(name)


def fails(context: RankContext, rank: int, how: str) -> Any:
    """One rank fails in the middle of a collective."""
    context.world()
    dist.barrier()
    print(f"rank {context.rank} speaks")
    context.operation("the second all_reduce")
    if context.rank == rank:
        if how == "raises":
            raise LookupError("of this rank")
        if how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exits":
            os._exit(7)
        if how == "answers no JSON":
            return object()
        stall_here()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return float(tensor)


def stall_here() -> None:
    """A function to be found in a stack."""
    time.sleep(1000)


def wait_until_gone(process: int) -> None:
    """Return when a process, which is nobody's child here, has ended."""
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{process}"):
        assert time.monotonic() < deadline, f"process {process} still runs"
        os.sched_yield()


def one_stalls_while_the_others_answer(context: RankContext) -> int:
    if context.rank == 1:
        stall_here()
    return context.rank


class CannotSayWhatItIs(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def misbehaves(context: RankContext, how: str) -> Any:
    """Rank 1 alone does something unusual; the ranks do not communicate."""
    print(f"rank {context.rank} was asked for: {how}")
    context.operation(how)
    if context.rank != 1:
        return context.rank
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if how == "aborts":
        os.abort()
    if how == "stops itself":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "raises what has no text":
        raise CannotSayWhatItIs
    if how == "raises a long text":
        raise LookupError("x" * 1_000_000)
    if how == "floods its log and stalls":
        print("a long line of the flood\n" * 100_000)
        stall_here()
    if how == "dies while its child lives" and os.fork() != 0:
        os._exit(3)
    if how == "dies while its child lives":
        stall_here()
    return context.rank


def starts_a_daemon(_context: RankContext) -> int:
    """A process in a session of its own, as daemons are."""
    daemon = os.fork()
    if daemon == 0:
        os.setsid()
        stall_here()
    return daemon


def forks_and_both_return(_context: RankContext) -> int:
    os.fork()
    return os.getpid()


def stops_later(context: RankContext) -> int:
    """Rank 1 answers, and is stopped then."""
    if context.rank == 1:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    return os.getpid()


def length_of(_context: RankContext, text: str) -> int:
    return len(text)
