"""The state of PyTorch's dispatcher in which kernels run on the host.

For: a kernel that runs later, in the middle of something else of the user's: below autograd, autocast and every mode, as it would
have run at its launch. Not for: choosing what runs.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

_ForceDispatchKeyGuard: Any = torch._C._ForceDispatchKeyGuard
_included: Any = torch._C._dispatch_tls_local_include_set()
_excluded: Any = torch._C._dispatch_tls_local_exclude_set()
for _key in ("AutogradFunctionality", "ADInplaceOrView", "Python", "PythonTLSSnapshot", "PythonDispatcher"):
    _excluded = _excluded.add(getattr(torch._C.DispatchKey, _key))


class HostMode:
    """A context in which operators on host tensors are plain computations; a new object for each `with`."""

    __slots__ = ("_functions", "_keys")

    def __enter__(self) -> None:
        self._functions: Any = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._keys: Any = _ForceDispatchKeyGuard(_included, _excluded)
        self._keys.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._keys.__exit__(None, None, None)
        self._functions.__exit__(None, None, None)
