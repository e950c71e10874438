"""Out-of-memory observers, attached once and guarded (MEM-5).

For: handing a framework's callback to a vendor's attach function so that an exception in it never replaces the out-of-memory
error. Not for: writing a snapshot; that is the callback's work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

OomObserver = Callable[[int, int, int, int], None]
AttachFunction = Callable[[OomObserver], Any]

# Vendors offer no detach, so what is attached stays so for the process, whichever adapter object attached it.
_attached: list[tuple[str, OomObserver]] = []
_lock = threading.Lock()


def attach_once(device_type: str, attach: AttachFunction, callback: OomObserver) -> None:
    """Attach `callback` unless it is attached to this device type already."""
    with _lock:
        if any(known_type == device_type and known == callback for known_type, known in _attached):
            return
        attach(_guarded(callback))
        _attached.append((device_type, callback))


def _guarded(callback: OomObserver) -> OomObserver:
    def observe(device: int, asked: int, limit: int, free: int) -> None:
        try:
            callback(device, asked, limit, free)
        except Exception:
            logger.exception("the out-of-memory observer %r failed; the out-of-memory error is raised all the same", callback)

    return observe
