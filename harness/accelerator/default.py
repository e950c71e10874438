"""The process-wide registry and selector behind the public functions, and the built-in backends.

For: frameworks that want one accelerator a process. Not for: the rules, which are `registry.py`'s and `selection.py`'s; tests and
embedders make objects of their own there. Importing this imports no vendor's package and initialises no runtime (REG-3, SEL-10).
"""

from __future__ import annotations

from harness.accelerator.contract import Accelerator
from harness.accelerator.registration import Factory, Probe, Registration
from harness.accelerator.registry import AcceleratorRegistry, installed_entry_points
from harness.accelerator.selection import AcceleratorSelector

BUILTIN_REGISTRATIONS = (
    Registration(
        name="cuda",
        factory="harness.accelerator.cuda:CUDAAccelerator",
        is_available="harness.accelerator.probes:cuda",
        priority=100,
        communication_backends=("nccl",),
        remedy="install a CUDA or ROCm build of PyTorch, and check the driver and CUDA_VISIBLE_DEVICES",
        origin="built in",
    ),
    Registration(
        name="musa",
        factory="harness.accelerator.musa:MUSAAccelerator",
        is_available="harness.accelerator.probes:musa",
        priority=200,
        communication_backends=("mccl",),
        request_variables=("MUSA_VISIBLE_DEVICES", "MUSA_PATCH_PATH"),
        bootstrap="harness.accelerator.musa_patch:apply_musa_patch",
        remedy="install a PyTorch that has torch.musa, and set MUSA_PATCH_PATH if it needs musa_patch",
        origin="built in",
    ),
    Registration(
        name="npu",
        factory="harness.accelerator.npu:NPUAccelerator",
        is_available="harness.accelerator.probes:npu",
        priority=180,
        communication_backends=("hccl",),
        remedy="install torch_npu, and check the driver and ASCEND_RT_VISIBLE_DEVICES",
        origin="built in",
    ),
    Registration(
        name="mlu",
        factory="harness.accelerator.mlu:MLUAccelerator",
        is_available="harness.accelerator.probes:mlu",
        priority=160,
        communication_backends=("cncl",),
        remedy="install torch_mlu, and check the driver and MLU_VISIBLE_DEVICES",
        origin="built in",
    ),
    Registration(
        name="xpu",
        factory="harness.accelerator.xpu:XPUAccelerator",
        is_available="harness.accelerator.probes:xpu",
        priority=80,
        communication_backends=("xccl",),
        remedy="install an XPU build of PyTorch, and check the driver, ZE_AFFINITY_MASK and ONEAPI_DEVICE_SELECTOR",
        origin="built in",
    ),
)
"""Vendors' devices come before CUDA's, which their compatibility shims imitate (SEL-15); integrated graphics come last."""

REGISTRY = AcceleratorRegistry(BUILTIN_REGISTRATIONS, entry_points=installed_entry_points)
SELECTOR = AcceleratorSelector(REGISTRY)


def register_accelerator(
    name: str,
    factory: Factory,
    is_available: Probe | None = None,
    priority: int = 0,
    communication_backends: tuple[str, ...] = (),
    *,
    replace: bool = False,
) -> None:
    """Register a backend for this process; see `AcceleratorRegistry.register` for the arguments and errors (REG-1 to REG-3)."""
    REGISTRY.register(name, factory, is_available, priority, communication_backends, replace=replace)


def unregister_accelerator(name: str) -> None:
    """Forget a backend; see `AcceleratorRegistry.unregister`."""
    REGISTRY.unregister(name)


def registered_accelerators() -> tuple[str, ...]:
    """Every registered or published name, sorted; imports nothing."""
    return REGISTRY.names()


def get_accelerator() -> Accelerator:
    """The accelerator of this process, selected at the first call; see `AcceleratorSelector.get` for the order and errors."""
    return SELECTOR.get()


def set_accelerator(accelerator: Accelerator) -> None:
    """Use this accelerator from now on; see `AcceleratorSelector.set`."""
    SELECTOR.set(accelerator)


def initialize_accelerator() -> Accelerator | None:
    """As `get_accelerator`, but None where there is no usable device and no request (SEL-5)."""
    return SELECTOR.initialize()


def reset_accelerator() -> None:
    """Forget the selection; see `AcceleratorSelector.reset`."""
    SELECTOR.reset()
