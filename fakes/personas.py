"""Which vendor's device a simulated machine plays, as data.

For: names, grammar and abilities of each persona. Not for: behaviour; every persona runs on the same machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

FLOAT8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
COMMON_DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)


@dataclass(frozen=True)
class Persona:
    """One vendor's device.

    `device_type` is the type in `torch.device(type, index)` and the name of the namespace `torch.<type>`. `display_name` is how
    its messages spell it. `transport` is its backend of `torch.distributed`. `grammar` is a key of
    `harness.accelerator.GRAMMARS`, or None for a device without a visible-devices variable. `management_modules` are the names
    under which its management library is imported. `extension_module` is the submodule with the vendor's private functions.
    `uuid_prefix` opens each UUID. `features` switch parts of the namespace on: streams, events, rng, memory, properties, amp,
    pinned_memory. `dtypes` are those that tensors may have; `autocast_dtypes` those of autocast. `device_name`, `compute_units`
    and `compute_capability` are what the device says of itself. `transport_dtypes` are those that collectives move; `reductions` says for
    each reduction, by PyTorch's name, which of them it takes.
    """

    name: str
    device_type: str
    display_name: str
    transport: str
    grammar: str | None
    management_modules: tuple[str, ...]
    extension_module: str
    uuid_prefix: str
    features: frozenset[str]
    dtypes: frozenset[torch.dtype]
    autocast_dtypes: tuple[torch.dtype, ...]
    device_name: str
    compute_units: int
    compute_capability: tuple[int, int]
    transport_dtypes: frozenset[torch.dtype]
    reductions: Mapping[str, frozenset[torch.dtype]]


FEATURES = frozenset({"streams", "events", "rng", "memory", "properties", "amp", "pinned_memory"})
"""Every feature that a persona may have."""

_NUMBERS = (torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32)
"""What every vendor's transport reduces."""


def _reductions(names: set[str], dtypes: tuple[torch.dtype, ...]) -> dict[str, frozenset[torch.dtype]]:
    return dict.fromkeys(sorted(names), frozenset(dtypes))


MUSA = Persona(
    name="musa",
    device_type="musa",
    display_name="MUSA",
    transport="mccl",
    grammar="musa",
    management_modules=("pymtml",),
    extension_module="_MUSAC",
    uuid_prefix="GPU-",
    features=FEATURES,
    dtypes=frozenset(COMMON_DTYPES + FLOAT8_DTYPES),
    autocast_dtypes=(torch.bfloat16, torch.float16),
    device_name="MTT S5000 (simulated)",
    compute_units=56,
    compute_capability=(3, 1),
    transport_dtypes=frozenset(COMMON_DTYPES + FLOAT8_DTYPES) - {torch.int16},
    reductions=_reductions({"SUM", "PRODUCT", "MIN", "MAX"}, (torch.bool, torch.uint8, torch.int8, *_NUMBERS, torch.float64))
    | {"AVG": frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})},
)

NPU = Persona(
    name="npu",
    device_type="npu",
    display_name="NPU",
    transport="hccl",
    grammar="npu",
    management_modules=(),
    extension_module="_NPUC",
    uuid_prefix="",
    features=FEATURES,
    dtypes=frozenset(COMMON_DTYPES),
    autocast_dtypes=(torch.float16, torch.bfloat16),
    device_name="Ascend 910B (simulated)",
    compute_units=24,
    compute_capability=(0, 0),
    transport_dtypes=frozenset(COMMON_DTYPES) - {torch.complex64, torch.complex128},
    reductions=_reductions({"SUM", "MIN", "MAX"}, (torch.int8, *_NUMBERS)) | {"PRODUCT": frozenset(_NUMBERS) - {torch.bfloat16}},
)

MINIMAL = Persona(
    name="minimal",
    device_type="minimal",
    display_name="minimal",
    transport="gloo",
    grammar=None,
    management_modules=(),
    extension_module="",
    uuid_prefix="",
    features=frozenset(),
    dtypes=frozenset((torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32)),
    autocast_dtypes=(),
    device_name="minimal device (simulated)",
    compute_units=1,
    compute_capability=(0, 0),
    transport_dtypes=frozenset((torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32)),
    reductions=_reductions({"SUM", "PRODUCT", "MIN", "MAX"}, (torch.uint8, torch.int32, torch.int64, torch.float32)),
)
"""As little as the contract allows: tensors, copies, the current device. No streams, events, random state or memory counters."""

PERSONAS: Mapping[str, Persona] = MappingProxyType({persona.name: persona for persona in (MUSA, NPU, MINIMAL)})
"""Every persona by name."""
