"""Programs about registering and publishing backends, for a fresh interpreter without PyTorch's autoload (REG-3, REG-4).

For: `conformance/test_registry.py`. Nothing of the library is imported before a program starts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.child_main import ChildBackend

_GROUP = "accelerator_conformance.backends"
_VENDORS = ("torch_musa", "torch_npu", "torch_mlu", "intel_extension_for_pytorch", "musa_patch")
_OURS = ("published_sound_module", "published_broken_module", "lazy_vendor_module")
_SOUND = """
from harness.accelerator.registration import AcceleratorPlugin
def make(): ...
PLUGIN = AcceleratorPlugin(factory=make, is_available=lambda: False, priority=7)
"""
_ENTRY_POINTS = f"""[{_GROUP}]
published_broken = published_broken_module:PLUGIN
published_sound = published_sound_module:PLUGIN
published_untidy = published_sound_module:nothing_of_that_name
"""


def published_backends(make_accelerator: ChildBackend) -> dict[str, Any]:
    """Install a distribution with a sound and two failing backends, then register, list, load and ask."""
    import torch  # noqa: F401 - what it loads by itself is not the library's doing

    before = set(sys.modules)
    make_accelerator.apply_fault()
    from conformance.stand_ins import Factory
    from harness.accelerator import registered_accelerators
    from harness.accelerator.registry import AcceleratorRegistry, installed_entry_points

    registered_accelerators()
    vendor_modules = [name for name in _VENDORS if name in sys.modules and name not in before]
    factory, probe = Factory(), Factory(False)
    with tempfile.TemporaryDirectory() as folder:
        _install(Path(folder))
        sys.path.insert(0, folder)
        registry = AcceleratorRegistry(entry_points=installed_entry_points)
        registry.register("called", factory, probe)
        registry.register("lazy", "lazy_vendor_module:make", "lazy_vendor_module:probe")
        answer: dict[str, Any] = {
            "names": list(registry.names()),
            "calls": factory.calls + probe.calls,
            "imported": [name for name in _OURS if name in sys.modules],
            "vendor_modules": vendor_modules,
        }
        return answer | _loaded(registry)


def _loaded(registry: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {"usable": [], "priority": None, "failures": {}, "refusals": {}, "error": None}
    try:
        usable = {registration.name: registration for registration in registry.registrations()}
        answer["usable"] = sorted(usable)
        answer["priority"] = usable["published_sound"].priority if "published_sound" in usable else None
        answer["failures"] = {name: f"{type(error).__name__}: {error}" for name, error in registry.entry_point_failures().items()}
    except Exception as error:  # noqa: BLE001 - the check reports it
        answer["error"] = f"{type(error).__name__}: {error}"
    for name in ("published_broken", "published_untidy"):
        try:
            answer["refusals"][name] = f"no error, but {registry.get(name)}"
        except Exception as error:  # noqa: BLE001 - the check reads it
            answer["refusals"][name] = f"{type(error).__name__}: {error}"
    return answer


def _install(folder: Path) -> None:
    information = folder / "published_backends-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: published-backends\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(_ENTRY_POINTS)
    (folder / "published_sound_module.py").write_text(_SOUND)
    (folder / "published_broken_module.py").write_text("import surely_absent_dependency\n")
    (folder / "lazy_vendor_module.py").write_text("def make(): ...\ndef probe(): ...\n")
