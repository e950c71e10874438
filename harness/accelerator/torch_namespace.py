"""The contract by delegation to a `torch.<type>` namespace.

For: a base on which a backend is a few lines of declarations (`cuda.py`, `musa.py`, `npu.py`, …). It joins the parts that
delegate (`namespace_access.py`, `namespace_memory.py`, `namespace_random.py`, `namespace_streams.py`) and adds autocast and the
capabilities. Not for: devices whose namespace lacks functions that `torch.accelerator` has; see `generic.py`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch

from harness.accelerator import probing
from harness.accelerator.capabilities import Capability, CapabilityEvidence
from harness.accelerator.namespace_memory import NamespaceMemory
from harness.accelerator.namespace_random import NamespaceRandom
from harness.accelerator.namespace_streams import NamespaceStreams
from harness.errors import UnsupportedCapabilityError


class TorchNamespaceAccelerator(NamespaceMemory, NamespaceRandom, NamespaceStreams):
    """A backend whose namespace has the functions of `torch.cuda`, or those of them that it supports.

    It is constructible without the vendor's package; a method that needs the package raises `AcceleratorUnavailableError` with
    the remedy."""

    declarations: Mapping[Capability, CapabilityEvidence] = {}
    """Answers that no probe can find out: hints, and what the vendor documents. They take precedence over probes."""
    memory_pause_modules: tuple[str, ...] = ()
    """Packages that pause and resume this device's memory."""

    @property
    def where_functions_are(self) -> str:
        """What `_find` looks through, in words for evidence."""
        return f"torch.{self.device_type}"

    def is_current_accelerator(self) -> bool:
        """Whether this device type is PyTorch's current accelerator (DEV-11)."""
        current = torch.accelerator.current_accelerator()
        return current is not None and current.type == self.device_type

    # Capabilities -------------------------------------------------------------------------------------------------------------

    @cached_property
    def _answers(self) -> dict[Capability, CapabilityEvidence]:
        return {}

    @cached_property
    def _answers_lock(self) -> threading.RLock:
        return threading.RLock()

    def probe(self, capability: Capability | str) -> CapabilityEvidence:
        member = Capability.parse(capability)
        answer = self._answers.get(member)
        if answer is None:
            if member not in self.declarations:
                self.accelerator_module()
            # One probe a capability: two threads must not see two answers (CAP-4).
            with self._answers_lock:
                answer = self._answers.get(member)
                if answer is None:
                    answer = self._answers[member] = probing.probe(self, member)
        return answer

    # Autocast -----------------------------------------------------------------------------------------------------------------

    def autocast_dtypes(self) -> tuple[torch.dtype, ...]:
        """The dtypes that autocast computes in on this device type; empty where it is not available. Touches no device."""
        try:
            if not torch.amp.is_autocast_available(self.device_type):
                return ()
        except RuntimeError:  # a device type that this PyTorch does not know
            return ()
        declared = self._find("get_amp_supported_dtype")
        if declared is not None:
            return tuple(declared())
        # PyTorch asks a renamed device for its dtypes and cannot do without the answer.
        if self.device_type == torch._C._get_privateuse1_backend_name():
            return ()
        return (torch.float16, torch.bfloat16)

    def autocast(self, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        self._check_autocast(*args, **kwargs)
        return torch.autocast(self.device_type, *args, **kwargs)

    def _check_autocast(
        self, dtype: torch.dtype | None = None, enabled: bool = True, _cache_enabled: bool | None = None, **_other: Any
    ) -> None:
        legal = self.autocast_dtypes()
        if not legal:
            raise UnsupportedCapabilityError(f"torch.autocast does not know {self.device_type}; ask supports('amp') first")
        if not enabled:
            return
        asked = torch.get_autocast_dtype(self.device_type) if dtype is None else dtype
        # bfloat16 depends on the device in use, so that autocast may know it and the device not.
        if asked not in legal or (asked == torch.bfloat16 and not self.supports(Capability.BF16)):
            names = ", ".join(str(name) for name in legal)
            raise UnsupportedCapabilityError(
                f"autocast to {asked} is not supported on {self.device_type}, and would silently run in full precision; "
                f"legal dtypes: {names}; bfloat16 where supports('bf16')"
            )
