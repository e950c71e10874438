"""Groups of this process that can be destroyed and rebuilt: one reloader, behind plain functions.

For: programs that want one. Not for: the rules (`reloader.py`); tests and embedders make a `ProcessGroupReloader` of their own.
"""

from __future__ import annotations

from typing import Any

from harness.process_group.reloader import ProcessGroupReloader

RELOADER = ProcessGroupReloader()


def new_reloadable_group(*arguments: Any, **keywords: Any) -> Any:
    """A group that survives destroy and reload; see `ProcessGroupReloader.new_group`."""
    return RELOADER.new_group(*arguments, **keywords)


def destroy_process_groups() -> None:
    """Free every communicator; see `ProcessGroupReloader.destroy_process_groups`."""
    RELOADER.destroy_process_groups()


def reload_process_groups() -> None:
    """Build everything again; see `ProcessGroupReloader.reload_process_groups`."""
    RELOADER.reload_process_groups()


def abandon_process_groups() -> None:
    """Start over on this rank alone; see `ProcessGroupReloader.abandon_process_groups`."""
    RELOADER.abandon_process_groups()
