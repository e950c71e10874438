"""Faults in autocast (AMP).

For: the catalogue. Not for: which operators autocast casts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.accelerator.torch_namespace import TorchNamespaceAccelerator


def _autocast(wrong: Callable[..., Any]) -> Callable[[Patches], None]:
    """Replace the adapter's `autocast`; `wrong(accelerator, right, **keywords)` may call `right(**keywords)`."""

    def apply(patches: Patches) -> None:
        original = TorchNamespaceAccelerator.autocast

        def autocast(self: Any, *arguments: Any, **keywords: Any) -> Any:
            return wrong(self, lambda **given: original(self, *arguments, **given), **keywords)

        patches.set(TorchNamespaceAccelerator, "autocast", autocast)

    return apply


def _left_to_pytorch(accelerator: Any, _right: Callable[..., Any], **keywords: Any) -> Any:
    return torch.autocast(accelerator.device_type, **keywords)


def _dtype_ignored(_accelerator: Any, right: Callable[..., Any], **keywords: Any) -> Any:
    keywords.pop("dtype", None)
    return right(**keywords)


def _off_ignored(_accelerator: Any, right: Callable[..., Any], **keywords: Any) -> Any:
    return right(**keywords) if keywords.get("enabled", True) else contextlib.nullcontext()


def _unsupported_ignored(_accelerator: Any, right: Callable[..., Any], **keywords: Any) -> Any:
    try:
        return right(**keywords)
    except NotImplementedError:
        return contextlib.nullcontext()


class _LeftOpen:
    """An autocast context that an exception leaves in force."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> Any:
        return self._context.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        return None if kind is not None else self._context.__exit__(kind, error, trace)


def _lost_on_exception(_accelerator: Any, right: Callable[..., Any], **keywords: Any) -> Any:
    return _LeftOpen(right(**keywords))


def _apply_half_refused(patches: Patches) -> None:
    patches.set(TorchNamespaceAccelerator, "autocast_dtypes", lambda _self: (torch.bfloat16,))


FAULTS: tuple[Fault, ...] = (
    Fault("amp-dtype-ignored", ("AMP-1",), "The asked dtype is ignored.", "derived", _autocast(_dtype_ignored)),
    Fault("amp-off-ignored", ("AMP-1",), "A nested `enabled=False` changes nothing.", "derived", _autocast(_off_ignored)),
    Fault("amp-lost-on-exception", ("AMP-1",), "An exception leaves autocast in force.", "derived", _autocast(_lost_on_exception)),
    Fault(
        "amp-left-to-pytorch", ("AMP-2",), "An unsupported dtype is left to PyTorch's warning.", "B129", _autocast(_left_to_pytorch)
    ),
    Fault(
        "amp-unsupported-ignored",
        ("AMP-2",),
        "An unsupported dtype runs in full precision.",
        "B129",
        _autocast(_unsupported_ignored),
    ),
    Fault(
        "amp-half-declared-and-refused", ("AMP-2",), "float16 is declared, and autocast refuses it.", "derived", _apply_half_refused
    ),
)
