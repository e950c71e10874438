"""Faults of destroying and rebuilding process groups.

For: PGL-1 to PGL-5, PGL-7, PGL-8. Not for: what leaks, and what happens when a rank fails (`process_group_cycles.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from fakes.faults.fault import Fault
from fakes.faults.replacing import Apply
from fakes.patching import Patches
from harness.process_group import handle, members, recipe, reloader

_RELOADER = reloader.ProcessGroupReloader
_HANDLE = handle.ReloadableProcessGroup


def _rebuilding(change: Callable[[dict[str, Any]], Any]) -> Apply:
    """A fault that changes the arguments of every call that makes a group again."""

    def apply(patches: Patches) -> None:
        made: list[Any] = []  # kept alive, so that no other recipe is taken for one of them
        right = recipe.CallRecipe.__call__

        def wrong(self: Any, **changes: Any) -> Any:
            if "store" not in changes and not any(known is self for known in made):
                made.append(self)
                return right(self, **changes)
            arguments = recipe._copies(self.arguments)
            change(arguments)
            return self.create(**{**arguments, **changes})

        patches.set(recipe.CallRecipe, "__call__", wrong)

    return apply


def _forgets(*names: str) -> Apply:
    def change(arguments: dict[str, Any]) -> None:
        for name in names:
            arguments.pop(name, None)

    return _rebuilding(change)


def _forgets_backend(arguments: dict[str, Any]) -> None:
    if "ranks" in arguments:
        arguments.pop("backend", None)


def _options_not_copied(patches: Patches) -> None:
    patches.set(recipe, "copy_options", lambda options: options)


def _callers_options_kept(patches: Patches) -> None:
    right = recipe.CallRecipe.of

    def wrong(create: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        made = right(create, arguments, keywords)
        if keywords.get("pg_options") is None:
            return made
        return recipe.CallRecipe(create, {**made.arguments, "pg_options": keywords["pg_options"]})

    patches.set(recipe.CallRecipe, "of", wrong)


def _ranks_reordered(patches: Patches) -> None:
    right = _RELOADER._start_world

    def wrong(self: Any, made: Any) -> None:
        rank = self._rank
        if made is self._world_recipe:
            self._rank = self._size - 1 - rank
        try:
            right(self, made)
        finally:
            self._rank = rank

    patches.set(_RELOADER, "_start_world", wrong)


def _held_twice(patches: Patches) -> None:
    right = _RELOADER._hold

    def wrong(self: Any, made: Any, group: Any) -> Any:
        held = right(self, made, group)
        if isinstance(group, dist.ProcessGroup):
            self._members.append(self._members[-1])
        else:
            self._members.append(members.Member(made, None))
        return held

    patches.set(_RELOADER, "_hold", wrong)


def _other_order_on_odd_ranks(patches: Patches) -> None:
    right = _RELOADER._start_world

    def wrong(self: Any, made: Any) -> None:
        right(self, made)
        if made is self._world_recipe and self._rank % 2:
            self._members.reverse()

    patches.set(_RELOADER, "_start_world", wrong)


def _destroys_one_by_one(patches: Patches) -> None:
    right = _RELOADER._end_world

    def wrong(self: Any) -> None:
        if self._is_live:
            groups = self.groups[::-1] if self._rank % 2 else self.groups
            for group in groups:  # in each rank's own order, and as a transport does that waits for the members
                dist.barrier(group=group)
                dist.destroy_process_group(group)
        right(self)

    patches.set(_RELOADER, "_end_world", wrong)


def _loses(is_lost: Callable[[Mapping[str, Any]], bool]) -> Apply:
    def apply(patches: Patches) -> None:
        right = _RELOADER._retire

        def wrong(self: Any, places: frozenset[int]) -> None:
            right(self, places)
            self._members = [member for member in self._members if not is_lost(member.recipe.arguments)]

        patches.set(_RELOADER, "_retire", wrong)

    return apply


def _registration_forgotten(patches: Patches) -> None:
    def wrong(self: Any, group: Any, *arguments: Any, accelerator: Any = None, **keywords: Any) -> Any:  # noqa: ARG001
        return group

    patches.set(_RELOADER, "register_group", wrong)


def _used_after_destroy(patches: Patches) -> None:
    right = _HANDLE._communicate

    def wrong(self: Any, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return None if self._group is None else right(self, operation, arguments, keywords)

    patches.set(_HANDLE, "_communicate", wrong)


def _refuses_with(error: Callable[[], Exception]) -> Apply:
    def apply(patches: Patches) -> None:
        right = _HANDLE._live

        def wrong(self: Any, operation: str) -> Any:
            if self._group is None:
                raise error()
            return right(self, operation)

        patches.set(_HANDLE, "_live", wrong)

    return apply


def _never_says_destroyed(patches: Patches) -> None:
    patches.set(_HANDLE, "is_destroyed", property(lambda _self: False))


def _unknown_to_pytorch(patches: Patches) -> None:
    patches.set(handle.DestroyedGroupRecord, "register", lambda _self: None)


def _group_made_between(patches: Patches) -> None:
    right = _RELOADER._recipe_of_group

    def wrong(self: Any, *arguments: Any) -> Any:
        live, self._is_live = self._is_live, True
        try:
            return right(self, *arguments)
        finally:
            self._is_live = live

    patches.set(_RELOADER, "_recipe_of_group", wrong)


def _second_destroy_raises(patches: Patches) -> None:
    right = _RELOADER.destroy_process_groups

    def wrong(self: Any) -> None:
        if not self.is_live:
            raise ValueError("Invalid process group specified")
        right(self)

    patches.set(_RELOADER, "destroy_process_groups", wrong)


def _second_reload_rebuilds(patches: Patches) -> None:
    right = _RELOADER.reload_process_groups

    def wrong(self: Any) -> None:
        if self._is_live:
            self.destroy_process_groups()
        right(self)

    patches.set(_RELOADER, "reload_process_groups", wrong)


def _no_world_between(patches: Patches) -> None:
    right = _RELOADER.destroy_process_groups

    def wrong(self: Any) -> None:
        right(self)
        if not self._is_live and dist.is_initialized():
            dist.destroy_process_group()

    patches.set(_RELOADER, "destroy_process_groups", wrong)


def _world_between_is_alone(patches: Patches) -> None:
    right = _RELOADER._start_world

    def wrong(self: Any, made: Any) -> None:
        if made is self._world_recipe:
            right(self, made)
            return
        rank, size, store = self._rank, self._size, self._store
        self._rank, self._size, self._store = 0, 1, HashStore()
        try:
            right(self, made)
        finally:
            self._rank, self._size, self._store = rank, size, store

    patches.set(_RELOADER, "_start_world", wrong)


def _world_between_on_the_device(patches: Patches) -> None:
    right = _RELOADER._start_world

    def wrong(self: Any, made: Any) -> None:
        right(self, made if made is self._world_recipe else self._world_recipe)

    patches.set(_RELOADER, "_start_world", wrong)


def _one_prefix(patches: Patches) -> None:
    patches.set(reloader, "_prefix", lambda _generation: "reload")


def _generation_is(count: Callable[[Any], int]) -> Apply:
    def apply(patches: Patches) -> None:
        patches.set(_RELOADER, "generation", property(count))

    return apply


FAULTS: tuple[Fault, ...] = (
    Fault("pgl-timeout-forgotten", ("PGL-2",), "A rebuilt group has PyTorch's default timeout.", "B71", _forgets("timeout")),
    Fault("pgl-options-forgotten", ("PGL-2",), "A rebuilt group has no backend options.", "B71", _forgets("pg_options")),
    Fault("pgl-description-forgotten", ("PGL-2",), "A rebuilt group has no description.", "B71", _forgets("group_desc")),
    Fault("pgl-backend-forgotten", ("PGL-2",), "A rebuilt group has WORLD's backend.", "B71", _rebuilding(_forgets_backend)),
    Fault("pgl-options-not-copied", ("PGL-2",), "Options are replayed as PyTorch left them.", "derived", _options_not_copied),
    Fault(
        "pgl-options-of-the-caller-kept",
        ("PGL-2",),
        "What the caller does to its options later is replayed.",
        "derived",
        _callers_options_kept,
    ),
    Fault("pgl-ranks-reordered", ("PGL-2",), "The rebuilt WORLD counts its ranks backwards.", "derived", _ranks_reordered),
    Fault("pgl-held-twice", ("PGL-2",), "A group is taken over twice, and built twice.", "B77", _held_twice),
    Fault(
        "pgl-rebuilt-in-another-order",
        ("PGL-4",),
        "Odd ranks rebuild their groups in the reverse order.",
        "B73",
        _other_order_on_odd_ranks,
    ),
    Fault(
        "pgl-destroyed-one-by-one",
        ("PGL-4",),
        "Groups are destroyed one after the other, each rank in its own order.",
        "B73",
        _destroys_one_by_one,
    ),
    Fault(
        "pgl-singletons-lost",
        ("PGL-3",),
        "A group of one rank is not rebuilt.",
        "derived",
        _loses(lambda given: len(given["ranks"]) == 1),
    ),
    Fault(
        "pgl-whole-groups-lost",
        ("PGL-3",),
        "A group without the first rank is not rebuilt.",
        "derived",
        _loses(lambda given: 0 not in given["ranks"]),
    ),
    Fault(
        "pgl-early-groups-forgotten",
        ("PGL-3",),
        "Groups made before registration are not taken over.",
        "seed",
        _registration_forgotten,
    ),
    Fault(
        "pgl-used-after-destroy",
        ("PGL-1",),
        "A collective on a destroyed group does nothing, silently.",
        "derived",
        _used_after_destroy,
    ),
    Fault(
        "pgl-destroyed-without-remedy",
        ("PGL-1",),
        "A destroyed group's error names neither the group nor the remedy.",
        "derived",
        _refuses_with(lambda: RuntimeError("process group is destroyed")),
    ),
    Fault(
        "pgl-destroyed-attribute-error",
        ("PGL-1",),
        "A destroyed group meets the caller as a missing attribute of None.",
        "seed",
        _refuses_with(lambda: AttributeError("'NoneType' object has no attribute 'allreduce'")),
    ),
    Fault("pgl-destroyed-not-said", ("PGL-1",), "A handle never says that it is destroyed.", "derived", _never_says_destroyed),
    Fault(
        "pgl-queries-lost",
        ("PGL-1",),
        "PyTorch knows nothing of a destroyed group, so that queries raise.",
        "derived",
        _unknown_to_pytorch,
    ),
    Fault(
        "pgl-group-made-between",
        ("PGL-1",),
        "A group can be made while all are destroyed, and is lost at reload.",
        "derived",
        _group_made_between,
    ),
    Fault("pgl-second-destroy-raises", ("PGL-5",), "Destroying again raises.", "B69", _second_destroy_raises),
    Fault(
        "pgl-second-reload-rebuilds", ("PGL-5",), "Reloading again builds everything once more.", "derived", _second_reload_rebuilds
    ),
    Fault("pgl-no-world-between", ("PGL-7",), "There is no WORLD between destroy and reload.", "derived", _no_world_between),
    Fault(
        "pgl-world-between-is-alone",
        ("PGL-7",),
        "The WORLD between has one rank on every rank.",
        "derived",
        _world_between_is_alone,
    ),
    Fault(
        "pgl-world-between-on-the-device",
        ("PGL-7",),
        "The WORLD between has the device's transport.",
        "derived",
        _world_between_on_the_device,
    ),
    Fault("pgl-stale-store-prefix", ("PGL-8",), "Every generation meets under the same keys.", "B74", _one_prefix),
    Fault(
        "pgl-generation-counts-cycles",
        ("PGL-8",),
        "The generation grows at reload only.",
        "derived",
        _generation_is(lambda self: self._generation // 2),
    ),
    Fault(
        "pgl-generation-differs",
        ("PGL-8",),
        "The generation is another one on each rank.",
        "derived",
        _generation_is(lambda self: self._generation + self._rank),
    ),
)
