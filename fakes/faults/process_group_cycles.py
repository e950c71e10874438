"""Faults of process groups that show over many cycles, when a rank fails, or in what a query does.

For: PGL-6, PGL-9 to PGL-11. Not for: single cycles of ranks that all live (`process_group_reload.py`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply
from fakes.patching import Patches
from harness.process_group import handle, recipe, reloader, torch_world

_RELOADER = reloader.ProcessGroupReloader
_HANDLE = handle.ReloadableProcessGroup


def _each_time(thing: Callable[[Any], Any]) -> Apply:
    """A fault that does something at each destroy, with the reloader's groups."""

    def apply(patches: Patches) -> None:
        right = _RELOADER.destroy_process_groups

        def wrong(self: Any) -> None:
            thing(self)
            right(self)

        patches.set(_RELOADER, "destroy_process_groups", wrong)

    return apply


def _keys_kept(patches: Patches) -> None:
    patches.set(_RELOADER, "_delete_old_keys", lambda _self: None)


def _opens_a_file(_self: Any) -> None:
    os.open(os.devnull, os.O_RDONLY)


def _keeps_groups(self: Any) -> None:
    torch_world.keep_forever(*(group._group for group in self.groups))


_block = threading.Event()


def _starts_a_thread(_self: Any) -> None:
    threading.Thread(target=_block.wait, daemon=True).start()


_kept: list[Any] = []


def _keeps_memory(_self: Any) -> None:
    _kept.append(bytearray(b"1") * (256 << 10))


def _keeps_records(self: Any) -> None:
    _kept.extend([{"generation": self._generation}, []] for _ in range(8))


def _warns(_self: Any) -> None:
    logging.getLogger("harness.process_group.reloader").warning("process group already invalid/aborted")


def _errors_pass_unnamed(patches: Patches) -> None:
    @contextmanager
    def wrong(_self: Any, _operation: str, _step: str, *, changes: bool = False) -> Iterator[None]:  # noqa: ARG001
        yield

    patches.set(_RELOADER, "_step", wrong)


def _no_note(patches: Patches) -> None:
    patches.set(handle, "add_note", lambda _error, _note: None)


def _swallows_errors(patches: Patches) -> None:
    right = _HANDLE._communicate

    def wrong(self: Any, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            return right(self, operation, arguments, keywords)
        except RuntimeError:
            return None

    patches.set(_HANDLE, "_communicate", wrong)


def _waits_longer(seconds: float) -> Apply:
    def apply(patches: Patches) -> None:
        right = recipe._copies

        def wrong(arguments: Any) -> dict[str, Any]:
            given = right(arguments)
            if given.get("timeout") is not None:
                given["timeout"] = timedelta(seconds=seconds)
            return given

        patches.set(recipe, "_copies", wrong)

    return apply


def _cannot_be_abandoned(patches: Patches) -> None:
    patches.set(_RELOADER, "abandon_process_groups", lambda _self: None)


def _impatient(patches: Patches) -> None:
    module: Any = reloader
    right = module.agree

    def wrong(operation: str, mine: Any, group: Any) -> Any:
        world: Any = torch_world.world()
        for device in world._device_types:
            world._get_backend(device)._set_default_timeout(timedelta(milliseconds=100))
        return right(operation, mine, group)

    patches.set(reloader, "agree", wrong)


def _size_checks_memory(patches: Patches) -> None:
    right = _HANDLE.size

    def wrong(self: Any) -> int:
        if self._reloader.memory_policy is not None:
            self._reloader.memory_policy.before_collective(None, "size")
        return right(self)

    patches.set(_HANDLE, "size", wrong)


def _rank_communicates(patches: Patches) -> None:
    right = _HANDLE.rank

    def wrong(self: Any) -> int:
        if getattr(self, "_group", None) is not None:
            self._group.barrier().wait()
        return right(self)

    patches.set(_HANDLE, "rank", wrong)


def _bound_to(device: Callable[[Any], Any]) -> Apply:
    def apply(patches: Patches) -> None:
        patches.set(_HANDLE, "bound_device_id", property(device))

    return apply


def _on_device_zero(group: Any) -> Any:
    bound = group._recorded["bound_device_id"]
    return None if bound is None else torch.device(bound.type, 0)


def _device_forgotten(patches: Patches) -> None:
    right = _RELOADER._adopt

    def wrong(self: Any, made: Any) -> None:
        right(self, made)
        kept = {name: value for name, value in self._world_recipe.arguments.items() if name != "device_id"}
        self._world_recipe = recipe.CallRecipe(made.create, kept)

    patches.set(_RELOADER, "_adopt", wrong)


def _touches_device_zero(self: Any) -> None:
    for group in self.groups:
        if group.bound_device_id is not None:
            torch.zeros(1, device=torch.device(group.bound_device_id.type, 0))


FAULTS: tuple[Fault, ...] = (
    Fault("pgl-old-keys-kept", ("PGL-6",), "The store keeps the keys of every generation.", "B74", _keys_kept),
    Fault("pgl-descriptors-leak", ("PGL-6",), "Each cycle leaves a file open.", "derived", _each_time(_opens_a_file)),
    Fault("pgl-groups-leak", ("PGL-6",), "The groups of every generation are kept.", "B78", _each_time(_keeps_groups)),
    Fault("pgl-threads-leak", ("PGL-6",), "Each cycle leaves a thread.", "derived", _each_time(_starts_a_thread)),
    Fault("pgl-memory-leaks", ("PGL-6",), "Each cycle keeps a quarter of a MiB.", "B78", _each_time(_keeps_memory)),
    Fault("pgl-records-pile-up", ("PGL-6",), "Each cycle keeps some records.", "B77", _each_time(_keeps_records)),
    Fault("pgl-clean-cycle-warns", ("PGL-6",), "Every clean cycle logs a warning.", "B77", _each_time(_warns)),
    Fault(
        "pgl-failure-unnamed",
        ("PGL-9",),
        "An error in destroy or reload does not say what failed.",
        "derived",
        _errors_pass_unnamed,
    ),
    Fault(
        "pgl-collective-error-without-note",
        ("PGL-9",),
        "An error from a collective does not say which one failed.",
        "derived",
        _no_note,
    ),
    Fault(
        "pgl-collective-error-swallowed",
        ("PGL-9",),
        "A collective that failed looks as if it had succeeded.",
        "derived",
        _swallows_errors,
    ),
    Fault(
        "pgl-dead-rank-makes-others-wait",
        ("PGL-9",),
        "The others wait for a dead rank much longer than the timeout.",
        "B67",
        _waits_longer(20),
    ),
    Fault(
        "pgl-survivors-cannot-start-over",
        ("PGL-9",),
        "After a failure the old world cannot be given up.",
        "derived",
        _cannot_be_abandoned,
    ),
    Fault("pgl-slow-rank-given-up", ("PGL-9",), "A rank that is half a second late is taken for dead.", "derived", _impatient),
    Fault("pgl-query-checks-memory", ("PGL-10",), "Asking for the size makes a memory check.", "derived", _size_checks_memory),
    Fault("pgl-query-communicates", ("PGL-10",), "Asking for the rank is a barrier.", "derived", _rank_communicates),
    Fault(
        "pgl-group-unbound",
        ("PGL-11",),
        "A handle knows no bound device, so that PyTorch guesses.",
        "B38",
        _bound_to(lambda _group: None),
    ),
    Fault(
        "pgl-barrier-on-device-zero",
        ("PGL-11",),
        "Barriers of every rank use the first device.",
        "derived",
        _bound_to(_on_device_zero),
    ),
    Fault("pgl-device-forgotten", ("PGL-11",), "A rebuilt WORLD is bound to no device.", "B63", _device_forgotten),
    Fault(
        "pgl-cycle-opens-device-zero",
        ("PGL-11",),
        "Each cycle opens a context on the first device.",
        "derived",
        _each_time(_touches_device_zero),
    ),
)
