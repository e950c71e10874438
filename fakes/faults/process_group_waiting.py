"""Faults of ranks that do not wait for each other where destroy and reload need it.

For: PGL-3. Not for: what is destroyed or rebuilt wrongly (`process_group_reload.py`), or ranks that fail (`process_group_cycles.py`).
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.process_group import reloader
from harness.process_group.agreement import Agreement

_RELOADER = reloader.ProcessGroupReloader


def _no_agreement(patches: Patches) -> None:
    patches.set(reloader, "agree", lambda _operation, mine, _group: Agreement(mine.retired, ()))
    _leaves_agreement_at_once(patches)


def _leaves_agreement_at_once(patches: Patches) -> None:
    patches.set(reloader, "wait_for_all", lambda _operation, _store, _size, _timeout: None)


def _no_barrier_after_reload(patches: Patches) -> None:
    right = _RELOADER.reload_process_groups

    def wrong(self: Any) -> None:
        with Patches() as inside:
            inside.set(dist, "barrier", lambda *_, **__: None)
            right(self)

    patches.set(_RELOADER, "reload_process_groups", wrong)


FAULTS: tuple[Fault, ...] = (
    Fault("pgl-destroys-without-the-others", ("PGL-3",), "A rank destroys WORLD before all ranks want to.", "B75", _no_agreement),
    Fault(
        "pgl-leaves-agreement-at-once",
        ("PGL-3",),
        "A rank destroys WORLD as soon as it has agreed itself, while others still agree over it.",
        "derived",
        _leaves_agreement_at_once,
    ),
    Fault(
        "pgl-no-barrier-after-reload", ("PGL-3",), "A rank goes on before all ranks have rebuilt.", "B75", _no_barrier_after_reload
    ),
)
