"""What each vendor's driver shows, worked out slowly and plainly from the vendors' documents.

For: telling what is due in the checks of VIS. Shares no code with the reference, whose grammars are data; here each vendor is a few
plain functions. Not for: texts on which the documents are silent; the checks do not draw those.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ModelHost:
    """A host. `uuids` in the driver's order, or None where nothing is known of its devices."""

    uuids: tuple[str, ...] | None = None

    @property
    def count(self) -> int | None:
        return None if self.uuids is None else len(self.uuids)


@dataclass(frozen=True)
class ModelDevice:
    """One visible device: its number and UUID as far as they are known; a sub-device has a name alone."""

    number: int | None = None
    name: str | None = None


Shown = list[ModelDevice] | None
"""The visible devices in order; None is every device of the host."""
Driver = Callable[[Mapping[str, str], ModelHost], Shown]

VARIABLES: Mapping[str, tuple[str, ...]] = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "musa": ("MUSA_VISIBLE_DEVICES",),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES",),
    "xpu": ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
    "mlu": ("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""What each driver reads."""


def shown(vendor: str, environment: Mapping[str, str], host: ModelHost) -> Shown:
    """What the vendor's driver shows."""
    return _DRIVERS[vendor](environment, host)


def resolved(visible: Shown, host: ModelHost, number: int) -> int | None:
    """The local id of a number; None where it must be refused."""
    if visible is None:
        return number if host.count is None or number < host.count else None
    for local, device in enumerate(visible):
        if device.number == number:
            return local
    return number if number < len(visible) else None


def resolved_uuid(visible: Shown, host: ModelHost, text: str) -> int | str | None:
    """The local id of a UUID or the start of one; "ambiguous", or None where it must be refused for another reason."""
    devices = [ModelDevice(number, uuid) for number, uuid in enumerate(host.uuids or ())] if visible is None else visible
    names = [(local, device.name) for local, device in enumerate(devices) if device.name is not None]
    for local, name in names:
        if name == text:
            return local
    fitting = [local for local, name in names if name.startswith(text) or text.startswith(name)]
    if len(fitting) > 1:
        return "ambiguous"
    return fitting[0] if fitting else None


def _host_device(host: ModelHost, number: int) -> ModelDevice | None:
    if host.uuids is None:
        return ModelDevice(number)
    return ModelDevice(number, host.uuids[number]) if number < len(host.uuids) else None


def _host_uuid(host: ModelHost, start: str) -> ModelDevice | None:
    if host.uuids is None:
        return ModelDevice(None, start)
    fitting = [ModelDevice(number, uuid) for number, uuid in enumerate(host.uuids) if uuid.startswith(start)]
    return fitting[0] if len(fitting) == 1 else None


def _cuda(value: str, host: ModelHost) -> list[ModelDevice]:
    visible: list[ModelDevice] = []
    by_uuid = value.startswith("GPU-") or value.startswith("MIG-")
    for entry in value.split(","):
        if by_uuid:
            device = _host_uuid(host, entry) if entry.startswith(value[:4]) else None
        else:
            match = re.match(r"[+-]?[0-9]+", entry.strip())
            device = _host_device(host, int(match[0])) if match and int(match[0]) >= 0 else None
        if device is None:
            return visible
        if device in visible:
            return []
        visible.append(device)
    return visible


def _npu(value: str, host: ModelHost) -> list[ModelDevice]:
    visible: list[ModelDevice] = []
    for entry in value.split(","):
        device = _host_device(host, int(entry)) if re.fullmatch("[0-9]+", entry) else None
        if device is None:
            break
        visible.append(device)
    numbers = [device.number or 0 for device in visible]
    return visible if numbers == sorted(set(numbers)) else []


def _mlu(value: str, host: ModelHost) -> list[ModelDevice]:
    visible: list[ModelDevice] = []
    for entry in value.split(","):
        device = _host_device(host, int(entry)) if re.fullmatch("[0-9]+", entry.strip()) else None
        if device is None:
            break
        if device in visible:
            return []
        visible.append(device)
    return visible


def _rocr(value: str, host: ModelHost) -> list[ModelDevice]:
    visible: list[ModelDevice] = []
    for entry in value.split(","):
        text = entry.strip()
        if text.startswith("GPU-"):
            device = _host_uuid(host, text)
        else:
            device = _host_device(host, int(text)) if re.fullmatch("0|[1-9][0-9]*", text) else None
        if device is None or device in visible:
            break
        visible.append(device)
    return visible


def _hip(value: str, host: ModelHost, lower: Shown) -> list[ModelDevice]:
    visible: list[ModelDevice] = []
    for entry in value.split(","):
        if entry.startswith("GPU-"):
            device = _uuid_among(lower, host, entry)
        else:
            device = _among(lower, host, int(entry)) if re.fullmatch("0|[1-9][0-9]*", entry) else None
        if device is None:
            break
        if device not in visible:
            visible.append(device)
    return visible


def _among(lower: Shown, host: ModelHost, number: int) -> ModelDevice | None:
    if lower is None:
        return _host_device(host, number)
    return lower[number] if number < len(lower) else None


def _uuid_among(lower: Shown, host: ModelHost, start: str) -> ModelDevice | None:
    if lower is None or any(device.name is None for device in lower):
        return _host_uuid(host, start)
    fitting = [device for device in lower if (device.name or "").startswith(start)]
    return fitting[0] if len(fitting) == 1 else None


def _affinity_mask(value: str, host: ModelHost) -> Shown:
    if not value:
        return None
    numbers = sorted({int(entry) for entry in value.split(",")})
    return [device for number in numbers if (device := _host_device(host, number)) is not None]


def _selector(value: str, host: ModelHost, lower: Shown) -> Shown:
    if not value:
        return lower
    chosen: set[int] = set()
    for term in value.split(";"):
        backend, _, devices = term.partition(":")
        if backend not in ("level_zero", "*"):
            continue
        if devices in ("*", "gpu"):
            return lower
        chosen |= {int(entry) for entry in devices.split(",")}
    return [device for number in sorted(chosen) if (device := _among(lower, host, number)) is not None]


def _rocm_driver(environment: Mapping[str, str], host: ModelHost) -> Shown:
    rocr, hip, cuda = (environment.get(variable) for variable in VARIABLES["rocm"])
    lower = None if rocr is None else _rocr(rocr, host)
    upper = hip or cuda
    return _hip(upper, host, lower) if upper else lower


def _xpu_driver(environment: Mapping[str, str], host: ModelHost) -> Shown:
    mask, selector = (environment.get(variable) or "" for variable in VARIABLES["xpu"])
    return _selector(selector, host, _affinity_mask(mask, host))


def _first_set(vendor: str, parse: Callable[[str, ModelHost], list[ModelDevice]]) -> Driver:
    def driver(environment: Mapping[str, str], host: ModelHost) -> Shown:
        for variable in VARIABLES[vendor]:
            if variable in environment:
                return parse(environment[variable], host)
        return None

    return driver


_DRIVERS: Mapping[str, Driver] = {
    "cuda": _first_set("cuda", _cuda),
    "musa": _first_set("musa", _cuda),
    "npu": _first_set("npu", _npu),
    "mlu": _first_set("mlu", _mlu),
    "rocm": _rocm_driver,
    "xpu": _xpu_driver,
}


def text_of(visible: Sequence[ModelDevice]) -> str:
    """For messages."""
    return "[" + ", ".join(str(device.number if device.number is not None else device.name) for device in visible) + "]"
