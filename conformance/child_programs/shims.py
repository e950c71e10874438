"""The built-in probes on a host that is pretended: vendors' packages without devices, and `torch.cuda` changed by a shim (SEL-14, SEL-15).

For: `conformance/test_selection_in_processes.py`. PyTorch's attributes are changed for good; the process ends with the program. Not for:
the backend under test (`selection.py`).
"""

from __future__ import annotations

import sys
import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.child_main import ChildBackend

_RIVAL = "conformance_rival"


def pretended_hosts(make_accelerator: ChildBackend) -> dict[str, Any]:
    """What is selected, and what was imported, on each pretended host."""
    make_accelerator.apply_fault()
    import torch

    with tempfile.TemporaryDirectory() as folder:
        planted = _planted_packages(torch, Path(folder))
    return {"planted": planted, "shims": _shims(torch)}


def _planted_packages(torch: Any, folder: Path) -> dict[str, Any]:
    """Vendors' packages are installed but have no device: who is selected, and were they imported?"""
    from harness.accelerator.probes import VENDOR_PACKAGES

    for device_type, package in VENDOR_PACKAGES.items():
        torch.__dict__.pop(device_type, None)
        sys.modules.pop(package, None)
        (folder / f"{package}.py").write_text(f"import torch\ntorch.{device_type} = object()\n")
    sys.path.insert(0, str(folder))
    _build(torch, cuda=None, bindings=False)
    selected = _selected_beside_rival()
    imported = [package for package in VENDOR_PACKAGES.values() if package in sys.modules]
    sys.path.remove(str(folder))
    return {"selected": selected, "imported": imported}


def _shims(torch: Any) -> dict[str, str]:
    """Who is selected where a shim answers for CUDA."""
    answers = {}
    yes, no = types.SimpleNamespace(is_available=lambda: True), types.SimpleNamespace(is_available=lambda: False)
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    _build(torch, cuda=None, bindings=False)
    answers["cuda is made available"] = _selected_beside_rival()
    _build(torch, cuda="12.8", bindings=False)
    answers["cuda is made available, with a version but no bindings"] = _selected_beside_rival()
    _build(torch, cuda=None, bindings=False)
    torch.npu = no
    answers["cuda is made available, the vendor has no device"] = _selected_beside_rival()
    torch.npu = yes
    answers["cuda is made available by a vendor with a device"] = _selected_beside_rival()
    torch.npu = no
    torch.cuda.is_available = lambda: False
    torch.cuda.device_count = lambda: 0
    torch.musa = yes
    answers["cuda is made unavailable by a vendor with a device"] = _selected_beside_rival()
    torch.musa = no
    _build(torch, cuda="12.8", bindings=True)
    answers["cuda is there, but made unavailable"] = _selected_beside_rival()
    return answers


def _build(torch: Any, *, cuda: str | None, bindings: bool) -> None:
    """Pretend a build of PyTorch with one CUDA device, or without any."""
    torch.version.cuda, torch.version.hip = cuda, None
    own = sys.modules["torch.cuda"]
    own._initialized = False  # type: ignore[attr-defined]
    own._device_count_nvml = lambda: 1 if bindings else -1  # type: ignore[attr-defined]
    torch._C._has_xpu = False
    if bindings:
        torch._C._cuda_getDeviceCount = lambda: 1
    else:
        torch._C.__dict__.pop("_cuda_getDeviceCount", None)


def _selected_beside_rival() -> str:
    """The built-in backends, with their own probes, beside a rival that is always available and comes last."""
    from dataclasses import replace

    from conformance.stand_ins import complete
    from harness.accelerator.default import BUILTIN_REGISTRATIONS
    from harness.accelerator.registry import AcceleratorRegistry
    from harness.accelerator.selection import AcceleratorSelector

    registry = AcceleratorRegistry()
    for registration in BUILTIN_REGISTRATIONS:
        name = registration.name
        registry.add(replace(registration, factory=lambda name=name: complete(name), bootstrap=None))  # type: ignore[misc]
    registry.register(_RIVAL, lambda: complete(_RIVAL), lambda: True, priority=-1000)
    try:
        return AcceleratorSelector(registry, {}).get().name
    except Exception as error:  # noqa: BLE001 - the check reads it
        return f"{type(error).__name__}: {error}"
