"""Accelerator factories that are wrong in one way each, for `--accelerator=strange_accelerators:NAME`."""

from __future__ import annotations


def raises() -> object:
    raise RuntimeError("no licence")


def returns_none() -> None:
    return None


class Unfinished:
    """What a busy engineer has on the first morning."""

    name = "unfinished"
    device_type = "cpu"
    visible_devices_env = "UNFINISHED_VISIBLE_DEVICES"

    def is_available(self) -> bool:
        return True


def unfinished() -> object:
    return Unfinished()
