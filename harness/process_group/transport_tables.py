"""What each transport declares that its collectives take: dtypes, reductions and operations.

For: knowing before a call whether a transport has it, and for the checks of COL-1, which test what is declared. Not for: which transport
serves a device (`normalizer.py`).

The tables are read from PyTorch's and the vendors' own lists. A backend says otherwise with an attribute `transport_table` on its adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "gather",
    "scatter",
    "send",
)
"""The operations on tensors that a transport may have, by PyTorch's names. Barrier and object collectives follow from them."""


@dataclass(frozen=True)
class TransportTable:
    """What one transport takes.

    `dtypes` are those that it moves unchanged; `reductions` gives, by the names of `torch.distributed.ReduceOp`, the dtypes that it
    reduces. `source` is where that is written.
    """

    transport: str
    dtypes: frozenset[torch.dtype]
    reductions: Mapping[str, frozenset[torch.dtype]]
    source: str
    collectives: frozenset[str] = frozenset(COLLECTIVES)


_INTEGERS = (torch.int32, torch.int64)
_HALVES = (torch.float16, torch.bfloat16)
_EVERY_REAL = (torch.bool, torch.uint8, torch.int8, *_INTEGERS, *_HALVES, torch.float32, torch.float64)
_ORDINARY = ("SUM", "PRODUCT", "MIN", "MAX")


def _reducing(names: Iterable[str], dtypes: Iterable[torch.dtype]) -> dict[str, frozenset[torch.dtype]]:
    return dict.fromkeys(names, frozenset(dtypes))


def _gloo() -> TransportTable:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    # Older ones lack the lists, and of reduce_scatter_tensor they make a sum whatever reduction is asked for.
    missing = set() if version >= (2, 13) else {"reduce_scatter", "reduce_scatter_tensor", "all_to_all"}
    return TransportTable(
        "gloo",
        frozenset(_EVERY_REAL),
        MappingProxyType(_reducing(_ORDINARY, set(_EVERY_REAL) - {torch.bool})),
        "PyTorch, ProcessGroupGloo: the types that its operations are generated for",
        frozenset(COLLECTIVES) - missing,
    )


_NCCL_LIKE = TransportTable(
    "nccl",
    frozenset(_EVERY_REAL),
    MappingProxyType(_reducing(_ORDINARY, _EVERY_REAL) | _reducing(("AVG",), (*_HALVES, torch.float32, torch.float64))),
    "PyTorch, ProcessGroupNCCL: its map from tensor types to ncclDataType_t, and what it makes of truth values",
)

TRANSPORT_TABLES: Mapping[str, TransportTable] = MappingProxyType(
    {
        "gloo": _gloo(),
        "nccl": _NCCL_LIKE,
        "mccl": replace(_NCCL_LIKE, transport="mccl", source="torch_musa: mccl follows nccl's types"),
        "hccl": TransportTable(
            "hccl",
            frozenset(_EVERY_REAL),
            MappingProxyType(
                _reducing(("SUM", "MIN", "MAX"), (torch.int8, *_INTEGERS, *_HALVES, torch.float32))
                | _reducing(("PRODUCT",), (*_INTEGERS, torch.float16, torch.float32))
            ),
            "CANN, HCCL interface reference: data types of HcclAllReduce and HcclReduceScatter",
        ),
    }
)
"""Every table that the project ships, by transport."""

_COMMON = (torch.int32, torch.int64, torch.float32)


def transport_table(accelerator: Any) -> TransportTable:
    """What the transport of an accelerator declares: the adapter's own `transport_table`, else the one of its name.

    A transport that nobody has written down is taken to move and reduce int32, int64 and float32. What the device's tensors cannot be is
    left out.
    """
    own = getattr(accelerator, "transport_table", None)
    if own is not None:
        table: TransportTable = own() if callable(own) else own
        return table
    name = str(accelerator.communication_backend_name)
    return TRANSPORT_TABLES.get(name) or TransportTable(
        name, frozenset(_COMMON), MappingProxyType(_reducing(("SUM", "MIN", "MAX"), _COMMON)), "what every transport has"
    )
