"""Adapters that do not inherit the contract's class, for `--accelerator=visible_devices_accelerators:NAME`."""

from __future__ import annotations

import os
from typing import Any

from harness.accelerator.visible_devices import GRAMMARS, read_visible_devices


class Foreign:
    """Somebody else's adapter that does what the contract says."""

    name = "foreign"
    device_type = "musa"
    visible_devices_env = "MUSA_VISIBLE_DEVICES"

    def is_available(self) -> bool:
        return False

    def resolve_visible_device_id(self, physical_device_id: Any) -> int:
        return read_visible_devices(GRAMMARS["musa"]).resolve(physical_device_id)


class Hasty(Foreign):
    """Reads the list as frameworks often do: empty is unset, ids pass through int(float()), nothing ends the list."""

    name = "hasty"

    def resolve_visible_device_id(self, physical_device_id: Any) -> int:
        listed = [entry.strip() for entry in os.environ.get(self.visible_devices_env, "").split(",") if entry.strip()]
        text = str(physical_device_id).strip()
        if not listed:
            return int(float(text))
        if text in listed:
            return listed.index(text)
        local = int(float(text))
        if 0 <= local < len(listed):
            return local
        raise ValueError(f"device id {physical_device_id} is not valid under {self.visible_devices_env}={','.join(listed)}")
