"""The handle of a group that can be destroyed and rebuilt.

For: an object that callers keep over destroy and reload, and that `torch.distributed` takes wherever it takes a group: collectives,
point-to-point, queries, functional collectives, device meshes. Not for: destroying and rebuilding (`reloader.py`), or
`DistributedDataParallel`, whose C++ part asks the object itself for a transport; give it `handle.process_group`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from harness.errors import ProcessGroupDestroyedError
from harness.process_group import torch_world
from harness.process_group.memory_policy import describe_device_memory

if TYPE_CHECKING:
    from harness.process_group.reloader import ProcessGroupReloader

RECORDED_QUERIES = ("group_name", "group_desc", "bound_device_id", "_device_types")
"""Properties that are remembered when a group is built, so that they answer after it was destroyed (PGL-1, PGL-10)."""
_OWN = frozenset({"rank", "size", "shutdown", "abort", "name", "unbox", "_pybind11_conduit_v1_", *RECORDED_QUERIES})
COLLECTIVES = frozenset(
    {
        "_allgather_base",
        "_end_coalescing",
        "_reduce_scatter_base",
        "all_gather_single",
        "all_gather_single_coalesced",
        "all_to_all_single",
        "allgather",
        "allgather_coalesced",
        "allgather_into_tensor_coalesced",
        "allreduce",
        "allreduce_coalesced",
        "alltoall",
        "alltoall_base",
        "barrier",
        "broadcast",
        "gather",
        "monitored_barrier",
        "recv",
        "recv_anysource",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_single",
        "reduce_scatter_single_coalesced",
        "reduce_scatter_tensor_coalesced",
        "scatter",
        "send",
    }
)
"""The methods that communicate, by all names that torch 2.7 to 2.13 give them."""


class ReloadableProcessGroup(dist.ProcessGroup):
    """A group of `ranks` (global, in group order) that a `ProcessGroupReloader` builds, destroys and builds again.

    `description` is the group's, or its ranks where it has none. Methods that communicate raise `ProcessGroupDestroyedError` while the
    group is destroyed; queries answer always and take no communication path. Made by `new_group` of a reloader, not by callers.
    """

    def __init__(self, group: Any, ranks: tuple[int, ...], reloader: ProcessGroupReloader) -> None:
        super().__init__(group.rank(), group.size())  # type: ignore[call-arg] # the stub has one of the two overloads
        self.ranks = ranks
        self._reloader = reloader
        self._process_id = os.getpid()
        self._is_abandoned = False
        self._group: Any = None
        self._attach(group)

    def __repr__(self) -> str:
        state = "" if self._group is not None else ", abandoned" if self._is_abandoned else ", destroyed"
        return f"<ReloadableProcessGroup {self.description!r}, rank {self.rank()} of {self.size()}{state}>"

    @property
    def description(self) -> str:
        """What names the group to a person."""
        default = self._recorded["group_desc"] in ("", "undefined")
        return f"ranks {list(self.ranks)}" if default else str(self._recorded["group_desc"])

    @property
    def is_destroyed(self) -> bool:
        """Whether the group has no communicator now."""
        return self._group is None

    @property
    def process_group(self) -> Any:
        """PyTorch's own group of the present generation; another one after each reload, so do not keep it.

        Raises:
            ProcessGroupDestroyedError: the group is destroyed.
        """
        return self._live("process_group")

    def name(self) -> str:
        """The transport's name, as PyTorch gives it."""
        return str(self._name)

    def shutdown(self) -> None:
        """End the communicator; PyTorch calls this when it destroys the group, and then forgets the group."""
        group, self._group = self._group, None
        if group is not None and self._process_id == os.getpid():
            group.shutdown()

    def abort(self) -> None:
        """As `shutdown`, without waiting for other ranks."""
        group, self._group = self._group, None
        if group is not None and self._process_id == os.getpid():
            group.abort()

    def _attach(self, group: Any) -> None:
        self._recorded = {query: getattr(group, query) for query in RECORDED_QUERIES}
        self._name = group.name()
        self._group = group

    def _detach(self, *, abandon: bool = False) -> None:
        self._group = None
        self._is_abandoned = self._is_abandoned or abandon

    def _live(self, operation: str) -> Any:
        """PyTorch's own group, or the error that says why there is none."""
        if self._group is not None and self._process_id == os.getpid():
            return self._group
        if self._process_id != os.getpid():
            remedy = f"process {self._process_id} made it and this one was forked from it; make groups of its own here"
        elif self._is_abandoned or not self._reloader.awaits_reload:
            remedy = "it was destroyed for good; create it again"
        else:
            remedy = "its communicator was destroyed; call reload_process_groups() on all ranks first"
        raise ProcessGroupDestroyedError(f"{operation} on process group {self.description!r} (ranks {list(self.ranks)}): {remedy}")

    def _communicate(self, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        group = self._live(operation)
        accelerator = self._reloader.accelerator_of(self._recorded["_device_types"])
        try:
            if self._reloader.memory_policy is not None and accelerator is not None:
                self._reloader.memory_policy.before_collective(accelerator, operation)
            work = getattr(group, operation)(*arguments, **keywords)
            # PyTorch would wait right after this call; waiting here lets the error have its note.
            if work is not None and _is_synchronous(arguments, keywords):
                work.wait()
        except Exception as error:
            note = f"in {operation} on process group {self.description!r}, rank {self.rank()} of {self.size()}"
            add_note(error, f"{note}; {describe_device_memory(accelerator)}")
            raise
        return work


def _is_synchronous(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether the caller waits at once; torch 2.7 does not tell, and then its own wait raises without the note."""
    return any(getattr(value, "asyncOp", True) is False for value in (*arguments, *keywords.values()))


def add_note(error: BaseException, note: str) -> None:
    """`error.add_note`, also before Python 3.11."""
    error.__notes__ = [*getattr(error, "__notes__", []), note]


def _forwarder(name: str) -> Callable[..., Any]:
    if name in COLLECTIVES:

        def method(self: ReloadableProcessGroup, *arguments: Any, **keywords: Any) -> Any:
            return self._communicate(name, arguments, keywords)

    else:

        def method(self: ReloadableProcessGroup, *arguments: Any, **keywords: Any) -> Any:
            return getattr(self._live(name), name)(*arguments, **keywords)

    method.__name__ = name
    method.__doc__ = f"`ProcessGroup.{name}` of the present generation."
    return method


def _recorded_property(name: str) -> property:
    return property(lambda self: self._recorded[name], doc=f"`ProcessGroup.{name}`, as it was when the group was built last.")


def _live_property(name: str) -> property:
    return property(lambda self: getattr(self._live(name), name), doc=f"`ProcessGroup.{name}` of the present generation.")


def _forward_everything(cls: type) -> None:
    """Give the handle every method and property of this PyTorch's groups, those of future versions included."""
    for name in dir(dist.ProcessGroup):
        attribute = inspect.getattr_static(dist.ProcessGroup, name)
        if name in RECORDED_QUERIES:
            setattr(cls, name, _recorded_property(name))
        elif name.startswith("__") or name in _OWN or isinstance(attribute, (type, dist.ProcessGroup.BackendType)):
            continue
        elif isinstance(attribute, property):
            setattr(cls, name, _live_property(name))
        elif callable(attribute):
            setattr(cls, name, _forwarder(name))


_forward_everything(ReloadableProcessGroup)


@dataclass(frozen=True)
class DestroyedGroupRecord:
    """What PyTorch says of a group, kept while the group is destroyed."""

    handle: ReloadableProcessGroup
    backend: str
    config: str

    @classmethod
    def of(cls, handle: ReloadableProcessGroup) -> DestroyedGroupRecord:
        """What PyTorch says of a group that is about to be destroyed."""
        config = ",".join(f"{device}:{backend}" for device, backend in torch_world.device_backends(handle).items())
        return cls(handle, torch_world.backend_of(handle), config)

    def register(self) -> None:
        """Have PyTorch say it again, in the WORLD of now."""
        torch_world.register_for_queries(self.handle, self.handle.ranks, self.backend, self.config, self.handle.group_name)
