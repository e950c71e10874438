"""An explicit, reversible patch of `torch.distributed`, for frameworks that call it with `nccl` themselves.

For: `patched_torch_distributed()` and its two halves (PGN-10). Not for: code that can call `normalizer.new_group` instead; that needs
no patch. Processes started by spawn are not patched; forked ones are, as their parent was, and may uninstall on their own.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed

from harness.process_group import normalizer, point_to_point

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator
    from harness.process_group.reloader import ProcessGroupReloader

logger = logging.getLogger(__name__)

PATCHED_FUNCTIONS = ("init_process_group", "new_group", "batch_isend_irecv")
_MODULES = ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh")
"""Where PyTorch keeps references to them; `new_subgroups` and device meshes call those."""
_ORIGINAL = "_before_the_accelerator_patch"


@dataclass(frozen=True)
class _Hold:
    """Who wants the patch, the accelerator to normalise for, and the reloader that makes the groups, if any."""

    holder: object
    accelerator: Accelerator | None
    reloader: ProcessGroupReloader | None


class TorchDistributedPatch:
    """Replaces the functions while at least one holder wants it, and puts the very same objects back after the last."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holds: tuple[_Hold, ...] = ()
        self._replaced: list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]] = []

    @property
    def is_active(self) -> bool:
        """Whether calls are normalised now."""
        return bool(self._holds)

    def hold(self, holder: object, accelerator: Accelerator | None, reloader: ProcessGroupReloader | None = None) -> None:
        """Patch for this holder; what the latest holder wants counts. A second hold of the same holder only changes what it wants."""
        new = _Hold(holder, accelerator, reloader)
        with self._lock:
            if any(hold.holder is holder for hold in self._holds):
                self._holds = tuple(new if hold.holder is holder else hold for hold in self._holds)
                return
            self._holds = (*self._holds, new)
            try:
                if not self._replaced:
                    self._replace()
            except BaseException:
                self.release(holder)
                raise

    def release(self, holder: object) -> None:
        """Give up one hold; without one, do nothing."""
        with self._lock:
            self._holds = tuple(hold for hold in self._holds if hold.holder is not holder)
            if not self._holds:
                self._restore()

    def renew_lock(self) -> None:
        """In a forked child: another thread of the parent may have held the lock at the fork."""
        self._lock = threading.RLock()

    def _replace(self) -> None:
        for name in PATCHED_FUNCTIONS:
            original: Callable[..., Any] = getattr(torch.distributed, name)
            wrapper = self._wrapper(original)
            for module_name in _MODULES:
                module = sys.modules.get(module_name)
                if module is not None and vars(module).get(name) is original:
                    setattr(module, name, wrapper)
                    self._replaced.append((module, name, original, wrapper))

    def _restore(self) -> None:
        while self._replaced:
            module, name, original, wrapper = self._replaced.pop()
            if vars(module).get(name) is wrapper:
                setattr(module, name, original)
            else:
                logger.warning(
                    "%s.%s was replaced by other code after this patch; that replacement stays, and what it still calls of this "
                    "patch passes backends on unchanged",
                    module.__name__,
                    name,
                )

    def _wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def normalized(*arguments: Any, **keywords: Any) -> Any:
            holds = self._holds
            if not holds:
                return original(*arguments, **keywords)
            if original.__name__ == "batch_isend_irecv":
                return functools.partial(point_to_point.batch_isend_irecv, otherwise=original)(*arguments, **keywords)
            wanted = holds[-1]
            if wanted.reloader is not None:
                return getattr(wanted.reloader, original.__name__)(*arguments, accelerator=wanted.accelerator, **keywords)
            arguments, keywords = normalizer.with_normalized_backend(original, arguments, keywords, wanted.accelerator)
            return original(*arguments, **keywords)

        normalized.__dict__[_ORIGINAL] = original
        return normalized


def pytorchs_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that this patch replaced, or the function itself where it is not ours."""
    own: Callable[..., Any] = getattr(function, _ORIGINAL, function)
    return own


_PATCH = TorchDistributedPatch()
_INSTALLED = object()
os.register_at_fork(after_in_child=_PATCH.renew_lock)


def install(accelerator: Accelerator | None = None, reloader: ProcessGroupReloader | None = None) -> None:
    """Patch `torch.distributed` until `uninstall`; installing again changes nothing but the two arguments (PGN-10).

    `accelerator` is the one to normalise for; None asks for the process's own at each call. With a `reloader`, every group that the program
    makes is one that can be destroyed and rebuilt.
    """
    _PATCH.hold(_INSTALLED, accelerator, reloader)


def uninstall() -> None:
    """Put PyTorch's own functions back, the very same objects; without `install`, do nothing. An enclosing
    `patched_torch_distributed` keeps its patch until it ends.
    """
    _PATCH.release(_INSTALLED)


def is_installed() -> bool:
    """Whether `torch.distributed` is patched now, by `install` or a context."""
    return _PATCH.is_active


@contextmanager
def patched_torch_distributed(
    accelerator: Accelerator | None = None, reloader: ProcessGroupReloader | None = None
) -> Iterator[None]:
    """A context in which `torch.distributed.init_process_group` and `new_group` normalise their backend; arguments as for `install`.
    It may be entered inside itself; however it ends, what it patched is undone (PGN-10).
    """
    holder = object()
    _PATCH.hold(holder, accelerator, reloader)
    try:
        yield
    finally:
        _PATCH.release(holder)
