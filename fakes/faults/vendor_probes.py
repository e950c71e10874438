"""Faults in vendors' patches and probes (SEL-6 to SEL-10, SEL-14, SEL-15).

For: the catalogue. Not for: the order of selection (`selection.py`). Each patches the reference's own methods and functions.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Any

import torch

from fakes.faults.fault import Fault
from fakes.patching import Patches
from harness.accelerator import probes
from harness.accelerator.musa_patch import VendorPatch
from harness.accelerator.registration import Availability, resolve_reference
from harness.accelerator.registry import AcceleratorRegistry
from harness.accelerator.selection import AcceleratorSelector, Request, check_probe
from harness.errors import VendorPatchError


def _patch_imported_twice(patches: Patches) -> None:
    apply = VendorPatch.apply

    def again(patch: VendorPatch, environment: Mapping[str, str] | None = None) -> bool:
        patch._applied = False
        sys.modules.pop(patch.module, None)
        return apply(patch, environment)

    patches.set(VendorPatch, "apply", again)


def _patch_for_any_choice(patches: Patches) -> None:
    select = AcceleratorSelector._select

    def bootstrap_all(selector: AcceleratorSelector) -> Any:
        for registration in selector.registry.registrations():
            if registration.bootstrap is not None:
                resolve_reference(registration.bootstrap)(selector._current_environment())
        return select(selector)

    patches.set(AcceleratorSelector, "_select", bootstrap_all)


def _patch_after_probe(patches: Patches) -> None:
    strict = AcceleratorSelector._select_requested

    def probe_first(selector: AcceleratorSelector, request: Request) -> Any:
        check_probe(selector.registry.get(request.name))
        return strict(selector, request)

    patches.set(AcceleratorSelector, "_select_requested", probe_first)


def _missing_dependency_read_as_absent(patches: Patches) -> None:
    load = VendorPatch._import

    def lenient(patch: VendorPatch) -> bool:
        try:
            return load(patch)
        except VendorPatchError as error:
            if isinstance(error.__cause__, ModuleNotFoundError):
                return False
            raise

    patches.set(VendorPatch, "_import", lenient)


def _absent_patch_unnoticed(patches: Patches) -> None:
    patches.set(VendorPatch, "_warn_absent", lambda _patch, _folder: None)


def _patch_failure_unchained(patches: Patches) -> None:
    load = VendorPatch._import

    def terse(patch: VendorPatch) -> bool:
        try:
            return load(patch)
        except VendorPatchError as error:
            raise VendorPatchError(str(error)) from None

    patches.set(VendorPatch, "_import", terse)


def _failed_patch_counts_as_applied(patches: Patches) -> None:
    apply = VendorPatch.apply

    def once(patch: VendorPatch, environment: Mapping[str, str] | None = None) -> bool:
        try:
            return apply(patch, environment)
        finally:
            patch._applied = True

    patches.set(VendorPatch, "apply", once)


def _listing_asks_the_runtime(patches: Patches) -> None:
    names = AcceleratorRegistry.names

    def asking(registry: AcceleratorRegistry) -> tuple[str, ...]:
        namespace = getattr(torch, "musa", None)
        if namespace is not None:
            namespace.set_device(0)
            namespace.synchronize()
        return names(registry)

    patches.set(AcceleratorRegistry, "names", asking)


def _probe_sets_a_variable(patches: Patches) -> None:
    probe = probes.musa

    def setting() -> Availability:
        # Another value each time: the suite's own process may have asked before, and its children inherit what it set.
        os.environ["MUSA_TIMES_PROBED"] = str(int(os.environ.get("MUSA_TIMES_PROBED", "0")) + 1)
        return probe()

    patches.set(probes, "musa", setting)


def _probe_imports_the_package(patches: Patches) -> None:
    state = probes._package_state

    def importing(package: str) -> str:
        if importlib.util.find_spec(package) is not None:
            importlib.import_module(package)
        return state(package)

    patches.set(probes, "_package_state", importing)


def _package_taken_for_a_device(patches: Patches) -> None:
    def installed() -> Availability:
        return Availability(importlib.util.find_spec("torch_npu") is not None, "torch_npu")

    patches.set(probes, "npu", installed)


def _shim_decides(patches: Patches) -> None:
    patches.set(probes, "cuda", lambda: Availability(torch.cuda.is_available(), "torch.cuda.is_available()"))


FAULTS: tuple[Fault, ...] = (
    Fault("sel-patch-imported-twice", ("SEL-6",), "Each selection imports the vendor's patch anew.", "B55", _patch_imported_twice),
    Fault("sel-patch-for-any-choice", ("SEL-6",), "Choosing another backend imports the patch too.", "B55", _patch_for_any_choice),
    Fault("sel-patch-after-probe", ("SEL-6",), "On a request the probe comes before the patch.", "seed", _patch_after_probe),
    Fault(
        "sel-missing-dependency-read-as-absent",
        ("SEL-7",),
        "A missing dependency of the patch is taken for an absent patch.",
        "B45",
        _missing_dependency_read_as_absent,
    ),
    Fault("sel-absent-patch-unnoticed", ("SEL-7",), "An absent patch gives no warning.", "seed", _absent_patch_unnoticed),
    Fault("sel-patch-failure-unchained", ("SEL-7",), "The patch's own error is lost.", "B45", _patch_failure_unchained),
    Fault(
        "sel-failed-patch-counts-as-applied",
        ("SEL-9",),
        "A patch that failed is not tried again.",
        "derived",
        _failed_patch_counts_as_applied,
    ),
    Fault("sel-listing-asks-the-runtime", ("SEL-10",), "Listing the backends uses the device.", "B50", _listing_asks_the_runtime),
    Fault("sel-probe-sets-a-variable", ("SEL-14",), "A probe changes the environment.", "B50", _probe_sets_a_variable),
    Fault("sel-probe-imports-the-package", ("SEL-14",), "A probe imports the vendor's package.", "B46", _probe_imports_the_package),
    Fault(
        "sel-package-taken-for-a-device",
        ("SEL-14",),
        "An installed vendor package without a device is chosen.",
        "B43",
        _package_taken_for_a_device,
    ),
    Fault("sel-shim-decides", ("SEL-15",), "torch.cuda.is_available() decides whether CUDA is there.", "B53", _shim_decides),
)
