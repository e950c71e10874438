"""Faults that end the process: a runtime that aborts, crashes or hangs where it should answer or refuse.

For: proving that such a backend fails one clause and the run goes on. Not for: wrong answers, which are the other areas'.
"""

from __future__ import annotations

import os
import select
import signal
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.accelerator.namespace_access import NamespaceAccess


def _crash_on_strided_copies(patches: Patches) -> None:
    from fakes import dispatch, special_operators
    from fakes.tensor import DeviceTensor

    operator = torch.ops.aten.copy_.default
    original = special_operators.SPECIAL[operator]

    def copy(plan: Any, args: Any, kwargs: Any) -> Any:
        if not isinstance(args[1], DeviceTensor) and not args[1].is_contiguous():
            os.kill(os.getpid(), signal.SIGSEGV)
        return original(plan, args, kwargs)

    patches.set_item(special_operators.SPECIAL, operator, copy)
    patches.set(dispatch, "_plans", {})


def _abort_out_of_range(patches: Patches) -> None:
    original = NamespaceAccess.set_device

    def set_device(self: Any, index: Any) -> None:
        if isinstance(index, int) and index >= self.device_count():
            os.abort()
        original(self, index)

    patches.set(NamespaceAccess, "set_device", set_device)


def _hang_on_the_second_device(patches: Patches) -> None:
    original = NamespaceAccess.set_device

    def set_device(self: Any, index: Any) -> None:
        if self.device_index(index) == 1:
            select.select([], [], [])
        original(self, index)

    patches.set(NamespaceAccess, "set_device", set_device)


FAULTS: tuple[Fault, ...] = (
    Fault(
        id="crash-on-strided-copy",
        clauses=("DEV-7",),
        summary="Copying a non-contiguous host tensor to the device ends the process with a segmentation fault.",
        seen_in="derived",
        apply=_crash_on_strided_copies,
        ends_process=True,
    ),
    Fault(
        id="crash-abort-out-of-range",
        clauses=("DEV-2", "DEV-4"),
        summary="The adapter hands an index past the last device to a runtime that aborts on it.",
        seen_in="derived",
        apply=_abort_out_of_range,
        ends_process=True,
    ),
    Fault(
        id="crash-hang-in-set-device",
        clauses=("DEV-3",),
        summary="Making the second device current never returns.",
        seen_in="B95",
        apply=_hang_on_the_second_device,
        ends_process=True,
    ),
)
