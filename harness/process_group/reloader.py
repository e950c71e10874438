"""Destroying every process group to free communicator memory, and building all of them again.

For: one object that knows WORLD and all its groups, and takes them from one generation to the next (PGL-1 to PGL-11). Not for: the
handles that callers keep (`handle.py`), or the process-wide instance behind the public functions (`reloadable.py`).

A generation is one WORLD. `destroy_process_groups` ends the present one and starts a CPU WORLD over gloo for control traffic;
`reload_process_groups` ends that and starts a WORLD as the first was, with every group. WORLD is destroyed once, which takes its groups
with it: taken one by one, overlapping groups deadlock, since a rank may make a group while another still destroys one. Each WORLD meets
under a store prefix of its own, and its keys are deleted when the next one stands.

WORLD itself is rebuilt as another object. What holds on to the first one, such as `DistributedDataParallel` without a `process_group`,
keeps its communicator: give it a handle, for instance of `new_group()` over all ranks.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from harness.accelerator import default
from harness.errors import HarnessError, ProcessGroupError
from harness.process_group import normalizer, torch_world
from harness.process_group.agreement import RankState, agree, wait_for_all
from harness.process_group.handle import DestroyedGroupRecord, ReloadableProcessGroup
from harness.process_group.members import Member, common_members, without_retired
from harness.process_group.recipe import CallRecipe
from harness.process_group.torch_patch import pytorchs_own

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator
    from harness.process_group.memory_policy import MemoryPolicy

_CONTROL = "reload control"
_REMEDY = ". All ranks have to call it; where one has died or will not, abandon_process_groups() lets the others start over"
_EVERY_RELOADER: weakref.WeakSet[ProcessGroupReloader] = weakref.WeakSet()


class ProcessGroupReloader:
    """The groups of one process, over their generations. Its operations are collective over all ranks, and not thread-safe.

    `accelerator` and `memory_policy` serve the notes on errors and the check before collectives; without an accelerator, the process's
    own is asked for when a group on a device first needs one.
    """

    def __init__(self, accelerator: Accelerator | None = None, memory_policy: MemoryPolicy | None = None) -> None:
        self.memory_policy = memory_policy
        self._accelerator = accelerator
        self._inherited: Any = None
        self._members: list[Member] = []
        self._forget()
        _EVERY_RELOADER.add(self)

    def _forget(self) -> None:
        """Start over; the handles of before are of no further use."""
        for handle in self.groups:
            handle._detach(abandon=True)
        self._world: Any = None
        self._world_recipe: CallRecipe | None = None
        self._rank, self._size = 0, 1
        self._store: Any = None
        self._first_store: Any = None
        self._members = []
        self._control: Any = None
        self._generation = 0
        self._is_live = False
        self._broken = ""

    # Queries ------------------------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The number of WORLDs before the present one; equal on all ranks (PGL-8)."""
        return self._generation

    @property
    def is_live(self) -> bool:
        """Whether groups can be created and used: there is a WORLD, and it is not the temporary one."""
        return torch_world.world() is not None and (self._is_live or torch_world.world() is not self._world)

    @property
    def awaits_reload(self) -> bool:
        """Whether the groups are destroyed and can come back; not where the program destroyed WORLD itself."""
        stands = torch_world.world() is not None and torch_world.world() is self._world
        return bool(self._broken) or (stands and not self._is_live)

    @property
    def groups(self) -> tuple[ReloadableProcessGroup, ...]:
        """The groups that this rank is a member of, in the order of their creation."""
        return tuple(member.handle for member in self._members if member.handle is not None)

    def accelerator_of(self, devices: Sequence[torch.device]) -> Accelerator | None:
        """The accelerator of a group on these devices; None for a group on the host alone."""
        if all(device.type == "cpu" for device in devices):
            return None
        if self._accelerator is None:
            with suppress(HarnessError):
                self._accelerator = default.initialize_accelerator()
        same = self._accelerator is not None and any(device.type == self._accelerator.device_type for device in devices)
        return self._accelerator if same else None

    # Creation -----------------------------------------------------------------------------------------------------------------

    def init_process_group(self, *arguments: Any, accelerator: Accelerator | None = None, **keywords: Any) -> None:
        """`torch.distributed.init_process_group` with the backend normalised, remembered in full for later generations.

        A WORLD that was made otherwise is remembered too, at the first group or destroy; what PyTorch does not tell, such as
        `pg_options`, is then not replayed.

        Raises:
            ProcessGroupError: backend options that cannot be copied; nothing has been made then.
        """
        self._follow_pytorch()
        create = pytorchs_own(dist.init_process_group)
        arguments, keywords = normalizer.with_normalized_backend(create, arguments, keywords, accelerator)
        recipe = CallRecipe.of(create, arguments, keywords)
        recipe()
        self._adopt(recipe)

    def new_group(self, *arguments: Any, accelerator: Accelerator | None = None, **keywords: Any) -> Any:
        """`torch.distributed.new_group` with the backend normalised; what a member gets is a `ReloadableProcessGroup`.

        Raises:
            ProcessGroupError: the groups are destroyed just now, or the backend options cannot be copied; nothing has been made then.
        """
        recipe = self._recipe_of_group("new_group", arguments, keywords, accelerator)
        group = recipe()
        self._adopt_if_unknown()
        return self._hold(recipe, group)

    def register_group(self, group: Any, *arguments: Any, accelerator: Accelerator | None = None, **keywords: Any) -> Any:
        """Take over a group that `new_group` returned elsewhere, given the arguments that it was called with; the handle to use from
        now on, or what `new_group` returned to a rank that is no member. All ranks call this, in the same order.

        Raises:
            ProcessGroupError: as `new_group`.
        """
        if isinstance(group, ReloadableProcessGroup):
            return group
        recipe = self._recipe_of_group("register_group", arguments, keywords, accelerator)
        self._adopt_if_unknown()
        return self._hold(recipe, group)

    # Generations --------------------------------------------------------------------------------------------------------------

    def destroy_process_groups(self) -> None:
        """Free every communicator. Afterwards a CPU WORLD carries control traffic, and the handles answer queries only (PGL-1, PGL-7).

        Does nothing where the groups are destroyed already, or this process has no WORLD of its own (PGL-5).

        Raises:
            ProcessGroupError: with the step that failed. Where the ranks do not agree, all of them raise, and nothing has changed.
        """
        operation = "destroy_process_groups"
        self._follow_pytorch()
        self._refuse_if_broken(operation)
        if not self.is_live or torch_world.world() is self._inherited:
            return
        self._adopt_if_unknown()
        with self._step(operation, "agreeing on the groups"):
            agreement = agree(operation, self._state(), self._control_group())  # its tensors live until this function returns
            self._retire(agreement.retired)
        self._leave_agreement(operation)
        shown = [DestroyedGroupRecord.of(handle) for handle in self.groups]
        timeout, names = torch_world.timeout_of(self._world), torch_world.names_used()
        with self._step(operation, "destroying WORLD", changes=True):
            self._end_world()
        with self._step(operation, "starting the CPU WORLD", changes=True):
            self._start_world(CallRecipe(pytorchs_own(dist.init_process_group), {"backend": "gloo", "timeout": timeout}))
            dist.barrier()
        for record in shown:
            record.register()
        torch_world.use_no_name_below(names)
        self._delete_old_keys()

    def reload_process_groups(self) -> None:
        """Build WORLD and every group again, as they were created first, and return on all ranks after all have done so (PGL-2, PGL-3).

        Does nothing where the groups are not destroyed (PGL-5).

        Raises:
            ProcessGroupError: as `destroy_process_groups`.
        """
        operation = "reload_process_groups"
        self._follow_pytorch()
        self._refuse_if_broken(operation)
        recipe = self._world_recipe
        if recipe is None or self._is_live:
            return
        with self._step(operation, "agreeing on the groups"):
            agreement = agree(operation, self._state(), None)  # its tensors live until this function returns
            self._retire(agreement.retired)
        self._leave_agreement(operation)
        with self._step(operation, "destroying the CPU WORLD", changes=True):
            self._end_world()
        with self._step(operation, "starting WORLD", changes=True):
            self._start_world(recipe)
        groups = []
        for member in self._members:
            with self._step(operation, f"building the group with {member.recipe.identity}", changes=True):
                groups.append(member.recipe())
        with self._step(operation, "waiting for all ranks", changes=True):
            dist.barrier(group=self._control_group())
        for member, group in zip(self._members, groups, strict=True):
            if member.handle is not None:
                torch_world.substitute(group, member.handle)
                member.handle._attach(group)
        self._is_live = True
        self._delete_old_keys()

    def abandon_process_groups(self) -> None:
        """Give up every group and WORLD on this rank alone, without waiting for anybody: for the survivors of a rank that died, and
        for forked children. A new WORLD can then be made; it needs a store that the old one did not use (PGL-9).
        """
        world = torch_world.world()
        if world is not None and world is self._inherited:
            torch_world.keep_forever(*torch_world.groups())
            torch_world.forget_world()
        elif world is not None:
            torch_world.abort_world()
        self._inherited = None
        self._forget()

    # Parts --------------------------------------------------------------------------------------------------------------------

    def _recipe_of_group(
        self, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any], accelerator: Accelerator | None
    ) -> CallRecipe:
        self._follow_pytorch()
        self._refuse_if_broken(operation)
        world = torch_world.world()
        if world is not None and world is self._inherited:
            raise ProcessGroupError(
                f"{operation}: this process was forked from one that had a WORLD, which it cannot use; call abandon_process_groups() "
                "and make a WORLD of its own"
            )
        if world is not None and not self.is_live:
            raise ProcessGroupError(f"{operation}: the groups are destroyed; call reload_process_groups() on all ranks first")
        create = pytorchs_own(dist.new_group)
        arguments, keywords = normalizer.with_normalized_backend(create, arguments, keywords, accelerator)
        return CallRecipe.of(create, arguments, keywords)

    def _hold(self, recipe: CallRecipe, group: Any) -> Any:
        """Remember a group; the handle of a member, and what PyTorch answered to others."""
        if not isinstance(group, dist.ProcessGroup):
            if not recipe.is_local:
                self._members.append(Member(recipe, None))
            return group
        handle = ReloadableProcessGroup(group, torch_world.ranks_of(group), self)
        torch_world.substitute(group, handle)
        self._members.append(Member(recipe, handle))
        return handle

    def _adopt_if_unknown(self) -> None:
        world: Any = torch_world.world()
        if world is self._world:
            return
        arguments = {"backend": torch_world.backend_of(world), "timeout": torch_world.timeout_of(world)}
        if world.bound_device_id is not None:
            arguments["device_id"] = world.bound_device_id
        self._adopt(CallRecipe(pytorchs_own(dist.init_process_group), arguments))

    def _adopt(self, recipe: CallRecipe) -> None:
        """Take WORLD as it stands for the first generation."""
        meeting = ("init_method", "store", "rank", "world_size")
        kept = {name: value for name, value in recipe.arguments.items() if name not in meeting}
        self._forget()
        self._world = torch_world.world()
        self._world_recipe = CallRecipe(recipe.create, kept)
        self._rank, self._size = self._world.rank(), self._world.size()
        self._first_store = torch_world.store_of(self._world)
        self._store = torch_world.store_below(self._first_store)
        self._is_live = True

    def _follow_pytorch(self) -> None:
        """Drop what is known of a WORLD that the program has destroyed or replaced itself."""
        if self._world is not None and torch_world.world() is not self._world:
            self._forget()

    def _refuse_if_broken(self, operation: str) -> None:
        if self._broken:
            raise ProcessGroupError(
                f"{operation}: an earlier operation failed half way ({self._broken}); call abandon_process_groups(), then make "
                "WORLD and the groups again"
            )

    def _state(self) -> RankState:
        own = {id(handle) for handle in self.groups} | {id(self._world), id(self._control)}
        strangers = [group for group in torch_world.groups() if id(group) not in own]
        shown = ", ".join(f"{list(torch_world.ranks_of(group))} ({torch_world.backend_of(group)})" for group in strangers)
        problem = (
            f"the groups of ranks {shown} were not made by the reloader and would be lost; make them with its new_group, hand them to "
            "register_group, or destroy them first"
        )
        common = common_members(self._members)
        return RankState(
            self._generation,
            tuple(member.recipe.identity for member in common),
            frozenset(place for place, member in enumerate(common) if member.is_retired),
            problem if strangers else "",
        )

    def _retire(self, places: frozenset[int]) -> None:
        """Forget the groups that some member destroyed for good; `places` count the common ones."""
        self._members = without_retired(self._members, places)

    def _leave_agreement(self, operation: str) -> None:
        """Go on when all ranks are done with the present WORLD: one that ends its connections breaks what others still do on theirs."""
        with self._step(operation, "waiting for all ranks to have agreed", changes=True):  # the others may have gone on
            store = self._store_of(self._generation)
            wait_for_all(operation, store, self._size, torch_world.timeout_of(self._world))

    def _control_group(self) -> Any:
        """A group of all ranks over the CPU; None, which is WORLD, where WORLD has gloo."""
        if torch_world.device_backends(torch_world.world()).get("cpu") == "gloo":
            return None
        if self._control is None:
            with torch_world.unbound_world():
                timeout = torch_world.timeout_of(torch_world.world())
                self._control = pytorchs_own(dist.new_group)(backend="gloo", timeout=timeout, group_desc=_CONTROL)
        return self._control

    def _end_world(self) -> None:
        self._is_live = False
        self._world = self._control = None
        try:
            torch_world.destroy_world()
        finally:
            for handle in self.groups:
                handle._detach()

    def _start_world(self, recipe: CallRecipe) -> None:
        self._generation += 1
        store = self._store_of(self._generation)
        hook = sys.excepthook
        try:
            recipe(store=store, rank=self._rank, world_size=self._size)
        finally:
            sys.excepthook = hook  # PyTorch wraps it at every start, and never unwraps it
        self._world = torch_world.world()

    def _store_of(self, generation: int) -> Any:
        return self._first_store if generation == 0 else torch_world.prefixed(_prefix(generation), self._store)

    def _delete_old_keys(self) -> None:
        """Have one rank delete the keys of the generation before, which no rank needs any more; where the store can list them."""
        if self._rank != 0:
            return
        store = self._store_of(self._generation - 1)
        with suppress(RuntimeError, AttributeError):
            for key in store.list_keys():
                store.delete_key(key)

    @contextmanager
    def _step(self, operation: str, step: str, *, changes: bool = False) -> Iterator[None]:
        """Name the step in whatever it raises; a step that changes something leaves this object unusable until it is abandoned."""
        try:
            yield
        except BaseException as error:
            if changes:
                self._broken = f"{operation}, {step}"
            if not isinstance(error, Exception) or isinstance(error, ProcessGroupError):
                raise
            raise ProcessGroupError(
                f"{operation} failed on rank {self._rank} of {self._size} while {step}: {type(error).__name__}: {error}{_REMEDY}"
            ) from error

    def _leave_to_parent(self) -> None:
        """In a forked child: the parent's groups are not ours, and must not be torn down here."""
        self._inherited = torch_world.world()
        torch_world.keep_forever(self._inherited, self._control, *(handle._group for handle in self.groups))
        self._forget()


def _prefix(generation: int) -> str:
    return f"reload/{generation}"


def _after_fork() -> None:
    for reloader in list(_EVERY_RELOADER):
        reloader._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
