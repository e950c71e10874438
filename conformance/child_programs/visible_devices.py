"""What a fresh process sees of the devices (VIS-12).

For: running in a child before anything has used the runtime. Not for: judging the answer.
"""

from __future__ import annotations

from typing import Any

from conformance.child_main import ChildBackend


def identities(make_accelerator: ChildBackend) -> list[str | None]:
    """The UUID or PCI id of each visible device in local order; None where the runtime tells neither."""
    accelerator: Any = make_accelerator()
    found: list[str | None] = []
    for index in range(int(accelerator.device_count())):
        try:
            properties = accelerator.get_device_properties(index)
        except Exception:  # noqa: BLE001 - a runtime without properties tells nothing
            found.append(None)
        else:
            found.append(_identity(properties))
    return found


def _identity(properties: Any) -> str | None:
    uuid = getattr(properties, "uuid", None)
    if uuid is not None:
        return str(uuid)
    parts = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    return None if None in parts else ":".join(map(str, parts))
