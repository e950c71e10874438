"""Programs about memory that need a process of their own: first use (MEM-8, MEM-11) and the allocator's settings (MEM-9).

For: `test_memory_settings.py`. Each returns plain data, which the check judges. Not for: judging.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

from conformance.accelerator_access import device_type_of, method
from conformance.contexts import open_contexts

_COUNTERS = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
_RESETS = ("reset_peak_memory_stats",)
_GLOBAL = ("empty_cache", "ipc_collect")
_DEVICES = 4


def before_first_use(make_accelerator: Callable[[], Any]) -> dict[str, Any]:
    """Ask every counter and call every reset before any use, then with the last device in use; then ask for free memory.

    Reports each question's answer, what was open after it, and what may be.
    """
    accelerator = make_accelerator()
    device_type = device_type_of(accelerator)
    count = int(method(accelerator, "device_count")())
    last = min(count, _DEVICES) - 1
    found = _asked(accelerator, device_type, count, range(last + 1), allowed=set())
    free = method(accelerator, "mem_get_info")(last)
    info = {"question": f"mem_get_info({last})", "open": _open(device_type, count), "allowed": [last], "answer": list(free)}
    accelerator.set_device(last)
    held = torch.ones(1, device=accelerator.device(last))
    found += _asked(accelerator, device_type, count, range(last), allowed={last})
    return {"observable": open_contexts(device_type, count) is not None, "found": found, "info": info, "held": held.item()}


def _asked(accelerator: Any, device_type: str, count: int, devices: range, allowed: set[int]) -> list[dict[str, Any]]:
    peaks = accelerator.supports("peak_memory")
    when = f"with device {max(allowed)} in use" if allowed else "before any use"
    found: list[dict[str, Any]] = []
    for name in (*_COUNTERS, *_RESETS, *_GLOBAL):
        if not peaks and ("max_" in name or name in _RESETS):
            continue
        places: list[tuple[Any, ...]] = [()] if name in _GLOBAL else [(index,) for index in devices]
        if not allowed and name not in _GLOBAL:
            places.append(())
        for arguments in places:
            try:
                answer: Any = method(accelerator, name)(*arguments)
            except Exception as error:  # noqa: BLE001 - the answer is data here, refusals included
                answer = f"{type(error).__name__}: {error}"
            found.append(
                {
                    "question": f"{name}({', '.join(map(str, arguments))}) {when}",
                    "counts": name in _COUNTERS,
                    "answer": answer,
                    "open": _open(device_type, count),
                    "allowed": sorted(allowed),
                }
            )
    return found


def _open(device_type: str, count: int) -> list[int]:
    return sorted(open_contexts(device_type, count) or ())


def collect_before_first_use(make_accelerator: Callable[[], Any]) -> dict[str, Any]:
    """`ipc_collect()` twice before any use; then what a tensor made afterwards holds."""
    accelerator = make_accelerator()
    method(accelerator, "ipc_collect")()
    method(accelerator, "ipc_collect")()
    return {"held": torch.arange(5, device=method(accelerator, "device")(0)).tolist()}


# The allocator's settings

_BOUNDARY = re.compile(r",(?![^\[]*\])")
_SETTERS = ("_set_allocator_settings", "_accelerator_setAllocatorSettings")


def expandable_segments(
    make_accelerator: Callable[[], Any], variable: str, steps: list[tuple[str | None, str]]
) -> list[dict[str, Any]]:
    """Use the device; then, for each step (value of `variable`, settings to put in force before, empty for none), look at one call.

    Reports for each step the answer, what was warned or logged, each call of a setter, and the snapshot's settings before and after.
    """
    accelerator = make_accelerator()
    accelerator.set_device(0)
    torch.ones(1, device=accelerator.device(0)).sum().item()
    memory = method(accelerator, "memory_module")()
    own = getattr(memory, _SETTERS[0], None)
    calls: list[str] = []
    _count_calls(memory, _SETTERS[0], calls)
    _count_calls(torch._C, _SETTERS[1], calls)
    logged = _Texts()
    logging.getLogger().addHandler(logged)
    found: list[dict[str, Any]] = []
    for value, settings in steps:
        if settings and own is not None:
            own(settings)
        os.environ.pop(variable, None)
        if value is not None:
            os.environ[variable] = value
        before = _settings(memory)
        calls.clear()
        logged.texts.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                answer: Any = method(accelerator, "set_allocator_expandable_segments")()
            except Exception as error:  # noqa: BLE001 - the answer is data here
                answer = f"{type(error).__name__}: {error}"
        found.append(
            {
                "answer": answer,
                "reports": [str(warning.message) for warning in caught] + logged.texts,
                "calls": list(calls),
                "has_setter": own is not None,
                "before": before,
                "after": _settings(memory),
            }
        )
    return found


class _Texts(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _count_calls(owner: Any, name: str, calls: list[str]) -> None:
    """Note the settings of every outermost call of a setter: one may be written with the other."""
    original = getattr(owner, name, None)
    if original is None:
        return

    def setter(settings: str) -> Any:
        inner = bool(_running)
        _running.append(name)
        try:
            if not inner:
                calls.append(settings)
            return original(settings)
        finally:
            _running.pop()

    setattr(owner, name, setter)


_running: list[str] = []


def _settings(memory: Any) -> dict[str, str] | None:
    """The settings of a snapshot, as text; None where none can be taken or it tells none."""
    take = getattr(memory, "_snapshot", None)
    if take is None:
        return None
    try:
        settings = take()["allocator_settings"]
    except Exception:  # noqa: BLE001 - vendors' snapshots differ
        return None
    return {str(name): str(value) for name, value in settings.items()} or None


def parts_of(settings: str) -> list[str]:
    """The single settings of a settings text; a comma inside brackets separates the parts of one value."""
    return [part.strip() for part in _BOUNDARY.split(settings) if part.strip()]
