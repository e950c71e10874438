"""The caching allocator under threads, finalizers, garbage collection and fork."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from typing import Any

import pytest
from allocators import check, make

from fakes.allocator import Block


class _Stream:
    def __init__(self, number: int) -> None:
        self.id = number


A, B = _Stream(0), _Stream(1)


def test_threads_may_allocate_and_free_at_once() -> None:
    allocator = make(1 << 40)
    shared: list[list[Block]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        for turn in range(300):
            shared[number].append(Block(allocator, 512 * (1 + (turn * 7 + number) % 9), A if turn % 3 else B))
            other = shared[(number + 1) % 4]
            if turn % 2 and other:
                try:
                    other.pop()
                except IndexError:
                    continue

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    check(allocator, [block for blocks in shared for block in blocks])
    shared.clear()
    check(allocator, [])


def test_a_finalizer_may_free_and_allocate_inside_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = make()
    kept: list[Block] = []
    block = Block(allocator, 4096, A)
    other = [Block(allocator, 4096, A)]
    original = allocator._find

    def interrupted(pool: Any, size: int) -> Any:
        monkeypatch.setattr(allocator, "_find", original)
        other.clear()
        kept.append(Block(allocator, 4096, A))
        assert allocator.statistics()["allocation.all.current"] == 3
        return original(pool, size)

    monkeypatch.setattr(allocator, "_find", interrupted)
    block = Block(allocator, 8192, A)
    check(allocator, [block, *kept])
    del block
    kept.clear()
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_garbage_is_collected_inside_allocations_without_harm() -> None:
    allocator = make(1 << 40)

    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.block = Block(allocator, 1024, A)
            weakref.finalize(self, lambda: Block(allocator, 2048, B))

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        live = [block for turn in range(100) for block in (Block(allocator, 512 * (1 + turn % 5), A), Cycle() and None) if block]
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    check(allocator, live)


def test_a_forked_child_frees_blocks_whatever_was_going_on() -> None:
    allocator = make()
    block = Block(allocator, 1024, A)
    with allocator._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # a child that hangs ends
            allocator.after_fork_in_child()
            worker = threading.Thread(target=block.__del__)
            worker.start()
            worker.join()
            os._exit(3 if allocator.allocated == 0 else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    check(allocator, [block])
