"""The device guard that PyTorch's C++ asks which device this is, and the exception that would be lost on its way.

For: exceptions of backward hooks. Not for: what is current (`machine.py`, `torch_patches.py`): PyTorch forwards no other question to a
Python guard.

A hook's exception is pending in the interpreter while PyTorch's engine unwinds its stream guards, which call `type_` (PyTorch 2.13). A
Python function that returns while an exception is pending is a SystemError, and in a destructor the end of the process. So `type_`
takes the pending exception away, and whoever called the engine raises it again.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import torch

_raise_pending: Any = ctypes.pythonapi.Py_IsInitialized
"""Any function of the C API: after the call, `ctypes` raises what is pending (its documentation says so of `PyDLL`)."""


class _Taken(threading.local):
    error: BaseException | None = None


_taken = _Taken()


def make() -> Any:
    """The guard to register."""
    # Made here, since older PyTorch has no such class and must still be able to import this package.
    private_use: Any = torch._C._autograd.DeviceType.PrivateUse1

    class DeviceGuard(torch._C._acc.DeviceGuard):
        def type_(self) -> Any:
            try:
                _raise_pending()
            except BaseException as error:  # noqa: BLE001 - `run_engine` raises it again
                _taken.error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            return private_use

    return DeviceGuard()


def run_engine(engine: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call PyTorch's engine; where it fails, raise the exception that the guard has taken away meanwhile."""
    outer, _taken.error = _taken.error, None
    try:
        return engine(*args, **kwargs)
    except BaseException:
        failure = _error_taken()
        if failure is None:
            raise
    finally:
        _taken.error = outer
    raise failure  # here, where the engine's SystemError is not its context


def _error_taken() -> BaseException | None:
    return _taken.error
