"""The groups that were asked for, in the order of asking.

For: which of them all ranks know, and which are gone for good. Not for: building or destroying any (`reloader.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from harness.process_group import torch_world
from harness.process_group.handle import ReloadableProcessGroup
from harness.process_group.recipe import CallRecipe


@dataclass
class Member:
    """A group that was asked for: how, and the handle that this rank holds, None where it is no member."""

    recipe: CallRecipe
    handle: ReloadableProcessGroup | None

    @property
    def is_retired(self) -> bool:
        """Whether this rank destroyed the group for good."""
        return self.handle is not None and not torch_world.is_registered(self.handle)


def common_members(members: Sequence[Member]) -> list[Member]:
    """The groups that all ranks know, in their common order."""
    return [member for member in members if not member.recipe.is_local]


def without_retired(members: Sequence[Member], places: Collection[int]) -> list[Member]:
    """What is left without the groups that some rank destroyed for good; `places` count the common ones."""
    common = common_members(members)
    gone = {id(common[place]) for place in places} | {id(member) for member in members if member.is_retired}
    return [member for member in members if id(member) not in gone]
