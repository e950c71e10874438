"""The one-time import of a vendor's optional patch module, and MUSA's.

For: `musa_patch`, which Moore Threads ships apart from PyTorch; a framework finds it by `MUSA_PATCH_PATH`, imports it before the
first use of `torch.musa` and calls its `patch_after_import_torch` (SEL-6, SEL-7, SEL-9). Not for: deciding when (`selection.py`) or
whether a device is there (`probes.py`).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from harness.errors import ReentrantSelectionError, VendorPatchError

logger = logging.getLogger(__name__)


class VendorPatch:
    """A patch module that is imported, and whose `callback` is called, at most once a process.

    `backend`: the accelerator that it belongs to, for messages. `path_variable`: an environment variable with a folder to append to
    `sys.path` first, so that nothing in it hides an installed module. An absent module is a warning. After a failure `sys.path` and
    the patch's own entries in `sys.modules` are as they were, and the next call tries again; its dependencies stay imported, since
    compiled modules cannot be imported twice.
    """

    def __init__(self, module: str, *, backend: str, path_variable: str, callback: str) -> None:
        self.module = module
        self.backend = backend
        self.path_variable = path_variable
        self.callback = callback
        self._lock = threading.RLock()
        self._applied = False
        self._applying = False
        self._warned = ""

    def apply(self, environment: Mapping[str, str] | None = None) -> bool:
        """Import the module and call its callback, unless that was done before; whether the patch is in force.

        Raises:
            VendorPatchError: the module needs another that is missing, or fails in any other way; the error is chained (SEL-7).
            ReentrantSelectionError: the patch itself, while it is imported, asks for the patch.
        """
        with self._lock:
            if self._applied:
                return True
            if self._applying:
                raise ReentrantSelectionError(f"{self.module} asks for the accelerator {self.backend!r} while it is being imported")
            self._applying = True
            try:
                with self._undone_unless_applied(os.environ if environment is None else environment):
                    self._applied = self._import()
            finally:
                self._applying = False
            return self._applied

    @contextmanager
    def _undone_unless_applied(self, environment: Mapping[str, str]) -> Iterator[None]:
        path = list(sys.path)
        known = set(sys.modules)
        folder = environment.get(self.path_variable, "").strip()
        if folder and folder not in sys.path:
            sys.path.append(folder)
        # A folder may have been looked into before, without success.
        importlib.invalidate_caches()
        try:
            yield
            if not self._applied:
                self._warn_absent(folder)
        finally:
            if not self._applied:
                sys.path[:] = path
                for name in [name for name in sys.modules if name not in known and f"{name}.".startswith(f"{self.module}.")]:
                    del sys.modules[name]

    def _import(self) -> bool:
        """Import the module and call its callback; False where the module is absent."""
        if not self._is_present():
            return False
        try:
            callback = getattr(importlib.import_module(self.module), self.callback, None)
            if callback is not None:
                self._call(callback)
        except ModuleNotFoundError as error:
            raise VendorPatchError(
                f"accelerator {self.backend!r}: {self.module} needs the module {error.name!r}, which is missing ({error}). "
                f"Install it, or take {self.module} out of {self.path_variable} and the installed packages to run without it"
            ) from error
        except (Exception, SystemExit) as error:
            raise VendorPatchError(
                f"accelerator {self.backend!r}: {self.module} failed with {type(error).__name__}: {error}. Mend it, or take it out "
                f"of {self.path_variable} and the installed packages to run without it"
            ) from error
        return True

    def _is_present(self) -> bool:
        return self.module in sys.modules or importlib.util.find_spec(self.module) is not None

    @staticmethod
    def _call(callback: Callable[[], object]) -> None:
        callback()

    def _warn_absent(self, folder: str) -> None:
        """Say once where an absent module was looked for."""
        looked = (
            f"neither in {self.path_variable}={folder!r} nor installed"
            if folder
            else f"not installed, {self.path_variable} not set"
        )
        if looked != self._warned:
            self._warned = looked
            logger.warning("accelerator %r: the optional module %s is %s; going on without it", self.backend, self.module, looked)


MUSA_PATCH = VendorPatch("musa_patch", backend="musa", path_variable="MUSA_PATCH_PATH", callback="patch_after_import_torch")


def apply_musa_patch(environment: Mapping[str, str] | None = None) -> bool:
    """Apply `musa_patch` once a process; see `VendorPatch.apply`. Also right for `Accelerator.post_import_torch`."""
    return MUSA_PATCH.apply(environment)
