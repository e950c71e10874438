"""An adapter under a drawn host and environment, for the checks of VIS.

For: finding the backend's vendor, setting the adapter's own variables for one question and putting them back, and standing in for the
host's device table where the adapter asks for it through `physical_devices`. Not for: what is due (`models/visible_devices.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import not_checkable, require, unsupported
from conformance.errors import ClauseViolation
from conformance.models.visible_devices import VARIABLES, ModelHost
from harness.accelerator import visible_devices
from harness.accelerator.contract import Accelerator
from harness.accelerator.visible_devices import GRAMMARS, PhysicalDevice

REFUSALS = (ValueError, RuntimeError, LookupError, TypeError)
"""What an adapter of any make may raise to refuse an id; not OverflowError, and not AttributeError."""
ALL_VARIABLES = tuple(dict.fromkeys(variable for variables in VARIABLES.values() for variable in variables))


def vendor_of(backend: BackendUnderTest) -> str:
    """The backend's vendor among the grammars that are written down; ends the check where there is none."""
    accelerator = backend.accelerator
    device_type = str(getattr(accelerator, "device_type", backend.name.removeprefix("fake-")))
    if device_type == "cuda" and torch.version.hip:
        return "rocm"
    if device_type in VARIABLES:
        return device_type
    if not getattr(accelerator, "visible_devices_env", ""):
        return unsupported(f"a {device_type} has no visible-devices variable")
    return not_checkable(f"no grammar is written down for {device_type}, so nothing tells what its variable must mean")


def has_cuda_grammar(backend: BackendUnderTest) -> bool:
    """Whether the clauses on CUDA's grammar bind the adapter; else they are a self-check of the library's."""
    device_type = str(getattr(backend.accelerator, "device_type", ""))
    return device_type == "musa" or (device_type == "cuda" and not torch.version.hip)


@dataclass(frozen=True)
class View:
    """Resolves ids of one vendor under a host and an environment."""

    vendor: str
    host: ModelHost
    environment: Mapping[str, str]
    backend: BackendUnderTest | None = None
    """None asks the library's grammar instead of the adapter."""

    def __str__(self) -> str:
        named = " ".join(f"{name}={value!r}" for name, value in self.environment.items()) or "no variable set"
        known = "" if self.host.uuids is None else f" on a host with {list(self.host.uuids)}"
        return f"with {named}{known}"

    def resolve(self, device_id: Any) -> Any:
        """The answer of the adapter, or of the library."""
        if self.backend is None:
            return visible_devices.read_visible_devices(GRAMMARS[self.vendor], self.environment, _table(self.host)).resolve(
                device_id
            )
        with set_variables(VARIABLES.get(self.vendor, ()), self.environment):
            return self._resolve(device_id)

    @cached_property
    def _resolve(self) -> Callable[[Any], Any]:
        """Of one adapter through which nothing but this view asks."""
        accelerator: Any = None if self.backend is None else self.backend.new_accelerator()
        resolve: Callable[[Any], Any] | None = getattr(accelerator, "resolve_visible_device_id", None)
        if resolve is None:
            raise ClauseViolation(f"{type(accelerator).__name__} has no method resolve_visible_device_id, which this clause needs")
        stand_in_host(accelerator, self.host)
        return resolve


def view(backend: BackendUnderTest, host: ModelHost, environment: Mapping[str, str]) -> View:
    """The adapter under a host and an environment of its vendor."""
    return View(vendor_of(backend), host, environment, backend)


def cuda_view(backend: BackendUnderTest, host: ModelHost, value: str | None) -> View:
    """CUDA's grammar with this value: the adapter's where it has that grammar, else the library's."""
    vendor = vendor_of(backend) if has_cuda_grammar(backend) else "cuda"
    environment = {} if value is None else {VARIABLES[vendor][0]: value}
    return View(vendor, host, environment, backend if has_cuda_grammar(backend) else None)


def takes_hosts(backend: BackendUnderTest) -> bool:
    """Whether a stand-in for the host's device table reaches the adapter: it inherits the contract's way of asking."""
    return isinstance(backend.accelerator, Accelerator)


def stand_in_host(accelerator: Any, host: ModelHost) -> None:
    """Answer for the management library, where the adapter is one that asks through `physical_devices`."""
    if isinstance(accelerator, Accelerator):
        table = _table(host)
        accelerator.physical_devices = lambda: table  # type: ignore[method-assign]


def largest_list(backend: BackendUnderTest) -> int:
    """How many devices a drawn list may name where the adapter's view of the host cannot be set and may be real."""
    return 8 if takes_hosts(backend) or backend.device_count == 0 else backend.device_count


def answer(asked: View, device_id: Any) -> int | None:
    """The local id as a plain int, or None where the id is refused."""
    try:
        answer = asked.resolve(device_id)
    except REFUSALS:
        return None
    require(
        isinstance(answer, int) and not isinstance(answer, bool), f"{asked}: {device_id!r} resolved to {answer!r}; due was an int"
    )
    return int(answer)


def said(local: object) -> str:
    """For messages."""
    return "a refusal" if local is None else f"local id {local}"


def vendor_or_none(backend: BackendUnderTest) -> str:
    """The vendor, or "" for a device without a variable."""
    return vendor_of(backend) if getattr(backend.accelerator, "visible_devices_env", "") else ""


def listing_variable(vendor: str) -> str:
    """The variable that takes bare numbers and that users set."""
    return {"rocm": "HIP_VISIBLE_DEVICES", "mlu": "MLU_VISIBLE_DEVICES"}.get(vendor, VARIABLES[vendor][0])


@contextlib.contextmanager
def set_variables(variables: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[None]:
    """Give `variables` the values in `environment`, unset those not in it, and put all back. Values in `environment` beyond
    `variables` are set too."""
    names = tuple(dict.fromkeys((*variables, *environment)))
    before = {name: os.environ.get(name) for name in names}
    try:
        for name in names:
            _set(name, environment.get(name))
        yield
    finally:
        for name, value in before.items():
            _set(name, value)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _table(host: ModelHost) -> tuple[PhysicalDevice, ...] | None:
    return None if host.uuids is None else tuple(PhysicalDevice(number, uuid) for number, uuid in enumerate(host.uuids))
