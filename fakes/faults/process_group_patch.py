"""Faults of the patch of `torch.distributed`.

For: PGN-10. Not for: what the patched functions do with a backend's name (`process_group.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.process_group import torch_patch


def _never_undone(patches: Patches) -> None:
    patches.set(torch_patch.TorchDistributedPatch, "release", lambda _self, _holder: None)


def _exception_leaves_it(patches: Patches) -> None:
    @contextmanager
    def wrong(accelerator: Any = None) -> Iterator[None]:
        holder = object()
        torch_patch._PATCH.hold(holder, accelerator)
        yield
        torch_patch._PATCH.release(holder)

    patches.set(torch_patch, "patched_torch_distributed", wrong)


def _wraps_again(patches: Patches) -> None:
    right = torch_patch.TorchDistributedPatch.hold

    def wrong(self: Any, holder: object, accelerator: Any, reloader: Any = None) -> None:
        right(self, holder, accelerator, reloader)
        self._replace()

    patches.set(torch_patch.TorchDistributedPatch, "hold", wrong)


def _restores_copies(patches: Patches) -> None:
    def wrong(self: Any) -> None:
        while self._replaced:
            module, name, original, _ = self._replaced.pop()

            def copy(*arguments: Any, _original: Any = original, **keywords: Any) -> Any:
                return _original(*arguments, **keywords)

            copy.__wrapped__ = original  # type: ignore[attr-defined]
            setattr(module, name, copy)

    patches.set(torch_patch.TorchDistributedPatch, "_restore", wrong)


def _forgotten_in_a_fork(patches: Patches) -> None:
    parent = os.getpid()
    right = torch_patch.TorchDistributedPatch._restore

    def wrong(self: Any) -> None:
        if os.getpid() == parent:
            right(self)

    patches.set(torch_patch.TorchDistributedPatch, "_restore", wrong)


def _patches_one_module(patches: Patches) -> None:
    patches.set(torch_patch, "_MODULES", ("torch.distributed",))


FAULTS: tuple[Fault, ...] = (
    Fault("pgn-patch-not-undone", ("PGN-10",), "Uninstalling leaves the patch.", "seed", _never_undone),
    Fault("pgn-exception-leaves-patch", ("PGN-10",), "An exception inside leaves the patch.", "derived", _exception_leaves_it),
    Fault("pgn-patch-wraps-twice", ("PGN-10",), "A second patch wraps the first one.", "B77", _wraps_again),
    Fault("pgn-patch-restores-copies", ("PGN-10",), "Other objects than PyTorch's own are put back.", "derived", _restores_copies),
    Fault(
        "pgn-fork-without-original",
        ("PGN-10",),
        "A forked child does not find PyTorch's own functions again.",
        "B85",
        _forgotten_in_a_fork,
    ),
)
