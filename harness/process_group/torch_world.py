"""PyTorch's registry of process groups, read and changed in one place.

For: everything that needs the private state of `torch.distributed.distributed_c10d` (tried with torch 2.7 to 2.13), so that one module
changes when PyTorch does. Not for: deciding anything (`reloader.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist

from harness.errors import ProcessGroupError

logger = logging.getLogger(__name__)

c10d: Any = dist.distributed_c10d
_MAPS = ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag")
_KEPT_FOREVER: list[Any] = []
"""Groups that a forked child inherited: their destructors would wait for threads that only the parent has. Tensors of a collective that
failed: see `agreement.Agreement`."""


def _registry() -> Any:
    registry = getattr(c10d, "_world", None)
    missing = [name for name in (*_MAPS, "tags_to_pg") if not hasattr(registry, name)]
    if missing:
        raise ProcessGroupError(
            f"torch {torch.__version__} keeps its process groups in another way (no {', '.join(missing)}), so they cannot be "
            "rebuilt; use a version from 2.7 to 2.13, or report this"
        )
    return registry


def world() -> Any | None:
    """The default process group, or None where there is none."""
    return dist.GroupMember.WORLD


def groups() -> list[Any]:
    """Every registered group of this process, WORLD included."""
    return list(_registry().pg_map)


def backend_of(group: Any) -> str:
    """The backend string that a group was made with, such as `cpu:gloo,cuda:nccl`, `nccl` or `undefined`."""
    return str(_registry().pg_map[group][0])


def device_backends(group: Any) -> dict[str, str]:
    """The transport of each device type in a group."""
    pairs = str(_registry().pg_backend_config[group]).split(",")
    return {pair.partition(":")[0]: pair.partition(":")[2] for pair in pairs}


def store_of(group: Any) -> Any:
    """The store under whose prefix a group and, for WORLD, all its subgroups meet."""
    return _registry().pg_map[group][1]


def prefixed(prefix: str, store: Any) -> Any:
    """A store whose keys are those of `store` under a prefix."""
    return c10d.PrefixStore(prefix, store)


def store_below(store: Any) -> Any:
    """The store that a prefix store writes to; any other store itself."""
    return getattr(store, "underlying_store", store)


def timeout_of(group: Any) -> Any | None:
    """The timeout that a group's transport was made with, or None where it does not say."""
    for device in group._device_types:
        with suppress(RuntimeError, AttributeError):
            return group._get_backend(device).options._timeout
    return None


def ranks_of(group: Any) -> tuple[int, ...]:
    """The global ranks of a group, in group order."""
    members = _registry().pg_group_ranks[group]
    return tuple(sorted(members, key=members.__getitem__))


def is_registered(group: Any) -> bool:
    """Whether PyTorch still knows a group."""
    return group in _registry().pg_map


def substitute(group: Any, handle: Any) -> None:
    """Have PyTorch know `handle` wherever it knew `group`, so that queries, tags and functional collectives find it."""
    registry = _registry()
    for name in _MAPS:
        entries = getattr(registry, name)
        if group in entries:
            entries[handle] = entries.pop(group)
    for tagged in registry.tags_to_pg.values():
        tagged[:] = [handle if tag_group is group else tag_group for tag_group in tagged]
    c10d._unregister_process_group(group.group_name)
    c10d._register_process_group(group.group_name, handle)


def register_for_queries(handle: Any, ranks: Sequence[int], backend: str, config: str, name: str) -> None:
    """Have PyTorch answer questions about a destroyed group in the present WORLD; by name and tag it is not found."""
    registry = _registry()
    registry.pg_map[handle] = (backend, store_of(world()))
    registry.pg_names[handle] = name
    registry.pg_group_ranks[handle] = {rank: place for place, rank in enumerate(ranks)}
    registry.pg_backend_config[handle] = config
    registry.pg_to_tag[handle] = f"destroyed:{name}"


def names_used() -> int:
    """How many of the numbers that name groups are used up; equal on all ranks."""
    return int(_registry().group_count)


def use_no_name_below(count: int) -> None:
    """Name later groups of this WORLD by other numbers than those that are used up: a destroyed group keeps its name."""
    registry = _registry()
    registry.group_count = max(registry.group_count, count)


def destroy_world() -> None:
    """Destroy WORLD and every group with it, once; forget them even where a transport raises.

    Raises:
        whatever a transport raises while it shuts down.
    """
    present = world()
    try:
        dist.destroy_process_group()
    finally:
        if world() is present:
            forget_world()


def abort_world() -> None:
    """End WORLD without waiting for other ranks, which may be dead; what a transport raises is logged."""
    abort = getattr(c10d, "_abort_process_group", dist.destroy_process_group)
    try:
        abort()
    except Exception as error:  # noqa: BLE001 - a broken transport must not keep its process from starting over
        logger.warning("while the groups were abandoned, a transport raised %s: %s", type(error).__name__, error)
        forget_world()


def forget_world() -> None:
    """Empty the registry without shutting anything down."""
    registry = _registry()
    for entries in (*(getattr(registry, name) for name in _MAPS), registry.tags_to_pg, registry.pg_coalesce_state):
        entries.clear()
    c10d._unregister_all_process_groups()
    registry.group_count = 0
    c10d._update_default_pg(None)


def keep_forever(*objects: Any) -> None:
    """Never let these be destroyed in this process."""
    _KEPT_FOREVER.extend(objects)


@contextmanager
def unbound_world() -> Iterator[None]:
    """A context in which WORLD is bound to no device: PyTorch refuses groups without a transport for the bound device."""
    present: Any = world()
    bound = present.bound_device_id
    if bound is None:
        yield
        return
    present.bound_device_id = None
    try:
        yield
    finally:
        present.bound_device_id = bound
