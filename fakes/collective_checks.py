"""What a transport refuses before anything moves: the misuse that one rank can see (COL-5).

For: the arguments of one rank's call. Not for: disagreements between ranks, which no rank sees alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from fakes.machine import current_machine
from fakes.tensor import DeviceTensor


def checked(
    label: str, tensors: Sequence[Any], dtypes: tuple[frozenset[torch.dtype], str] | None = None
) -> tuple[DeviceTensor, ...]:
    """The tensors of one argument.

    `dtypes` are those that may be reduced, and how the reduction is called; else every dtype that the transport moves may be.

    Raises:
        ValueError: a tensor is on another device than the rest, or not contiguous. TypeError: a dtype that the transport does not have.
    """
    machine = current_machine()
    found: list[DeviceTensor] = []
    for tensor in tensors:
        if not isinstance(tensor, DeviceTensor):
            raise ValueError(  # noqa: TRY004 - as vendors do: it is a tensor, elsewhere
                f"{label}: {machine.persona.transport} moves {machine.persona.device_type} tensors, and one is on {tensor.device}"
            )
        if not tensor.is_contiguous():
            raise ValueError(f"{label}: tensors must be contiguous, and one of shape {list(tensor.shape)} is not")
        require_dtype(label, tensor.dtype, dtypes)
        found.append(tensor)
    return tuple(found)


def require_dtype(label: str, dtype: torch.dtype, dtypes: tuple[frozenset[torch.dtype], str] | None) -> None:
    """Refuse a dtype that the transport cannot move, or reduce.

    Raises:
        TypeError: see above.
    """
    persona = current_machine().persona
    if dtype not in persona.transport_dtypes:
        raise TypeError(f"{label}: {persona.transport} does not support {dtype}")
    if dtypes is not None and dtype not in dtypes[0]:
        raise TypeError(f"{label}: {persona.transport} does not reduce {dtype} by {dtypes[1]}")


def refuse_reduction(name: str) -> tuple[frozenset[torch.dtype], str]:
    """The dtypes that a reduction takes, and its name.

    Raises:
        ValueError: the transport does not have it.
    """
    persona = current_machine().persona
    if name not in persona.reductions:
        raise ValueError(f"{persona.transport} has no reduction {name}; it has {', '.join(sorted(persona.reductions))}")
    return persona.reductions[name], name


def require_one_device(label: str, tensors: Sequence[DeviceTensor]) -> int:
    """The index of the one device that all tensors are on.

    Raises:
        ValueError: there are two.
    """
    indices = sorted({tensor._index for tensor in tensors})
    if len(indices) > 1:
        kind = current_machine().persona.device_type
        raise ValueError(
            f"{label}: all tensors must be on one device, and these are on {', '.join(f'{kind}:{i}' for i in indices)}"
        )
    return indices[0]


def require_count(label: str, what: str, count: int, due: int) -> None:
    """Refuse a list of the wrong length.

    Raises:
        ValueError: see above.
    """
    if count != due:
        raise ValueError(f"{label}: {count} {what} were given; there must be {due}")


def require_elements(label: str, tensor: DeviceTensor, due: int) -> None:
    """Refuse a tensor of the wrong size.

    Raises:
        ValueError: see above.
    """
    if tensor.numel() != due:
        raise ValueError(f"{label}: a tensor of shape {list(tensor.shape)} has {tensor.numel()} elements; it must have {due}")


def require_equal_dtypes(label: str, tensors: Sequence[DeviceTensor]) -> None:
    """Refuse tensors of several dtypes.

    Raises:
        TypeError: see above.
    """
    dtypes = sorted({str(tensor.dtype) for tensor in tensors})
    if len(dtypes) > 1:
        raise TypeError(f"{label}: all tensors must have one dtype, and these have {', '.join(dtypes)}")


def split_bytes(label: str, tensor: DeviceTensor, splits: Sequence[int], size: int) -> list[int]:
    """How many bytes go to each rank.

    Raises:
        ValueError: the splits do not add up, or the rows cannot be cut equally.
    """
    rows = tensor.shape[0] if tensor.dim() else 1
    row = math.prod(tensor.shape[1:]) * tensor.dtype.itemsize
    if not splits:
        if rows % size:
            raise ValueError(f"{label}: {rows} rows cannot be split equally among {size} ranks; give the sizes of the splits")
        return [rows // size * row] * size
    require_count(label, "split sizes", len(splits), size)
    if sum(splits) != rows or min(splits) < 0:
        raise ValueError(f"{label}: split sizes {list(splits)} add up to {sum(splits)}, and the tensor has {rows} rows")
    return [count * row for count in splits]
