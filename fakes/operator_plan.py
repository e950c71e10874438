"""What is known of an operator for good, read from its schema and tags.

For: deciding once an operator what it writes, aliases, draws and waits for. Not for: running it (`dispatch.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fakes import composed_operators

Place = int | str
"""Where an argument stands: its position, or its name where it is a keyword."""

_HOST_TENSOR_OPERATORS = frozenset(
    {
        "aten::_index_put_impl_",
        "aten::_pack_padded_sequence",
        "aten::_unsafe_index",
        "aten::_unsafe_index_put",
        "aten::index",
        "aten::index_put",
        "aten::index_put_",
    }
)
"""Operators that take CPU indices, masks or lengths (DEV-9)."""
_GROWING_OPERATORS = frozenset({"aten::constant_pad_nd", "aten::repeat", "aten::repeat_interleave"})
"""Operators whose result may be far larger than their arguments, so that room is asked for first."""
_CHECKED_ON_THE_HOST = frozenset(
    {
        "aten::_linalg_check_errors",
        "aten::_linalg_svd",
        "aten::linalg_eig",
        "aten::normal.Tensor_Tensor",
        "aten::normal.float_Tensor",
    }
)
"""Operators whose values PyTorch looks at on the host of an accelerator, to refuse them at the call."""
_RESIZING_OPERATORS = frozenset({"aten::_resize_output_", "aten::resize_", "aten::resize_as_", "aten::set_"})


class OperatorPlan:
    """One operator.

    `kernel` computes it on host tensors. `mutated` holds the places of the arguments that it writes; `returns` says for each
    result which of them it is, or None where it is new; `view_of` is the position that its results are views of, or None.
    `has_device`: it takes a `device` keyword. `random`: it draws numbers, by its own `generator` argument where
    `takes_generator`. `waits`: the host needs its arguments' contents before it can go on. `reshapes`: it may change the geometry
    of what it writes. `moves_view`: it only does that, and keeps the memory. `grows`: its result may be far larger than its
    arguments. `takes_host_tensors`: some arguments may be CPU tensors.
    """

    __slots__ = (
        "grows",
        "has_device",
        "kernel",
        "moves_view",
        "mutated",
        "name",
        "operator",
        "random",
        "reshapes",
        "returns",
        "run",
        "takes_generator",
        "takes_host_tensors",
        "view_of",
        "waits",
    )

    def __init__(self, operator: Any) -> None:
        schema, tags = operator._schema, operator.tags
        names = {argument.name for argument in schema.arguments}
        self.operator = operator
        self.name: str = schema.name
        self.kernel: Callable[..., Any] = composed_operators.KERNELS.get(operator, operator._op)
        written: dict[str, Place] = {}
        self.view_of: int | None = None
        for position, argument in enumerate(schema.arguments):
            alias = argument.alias_info
            if alias is None:
                continue
            if alias.is_write:
                written[argument.name] = argument.name if argument.kwarg_only else position
            elif self.view_of is None and any(result.alias_info is not None for result in schema.returns):
                self.view_of = position
        self.mutated: tuple[Place, ...] = tuple(written.values())
        self.returns = tuple(_written_argument(schema, result, written) for result in schema.returns)
        self.has_device = "device" in names
        self.takes_generator = "generator" in names
        self.random = self.takes_generator or torch.Tag.nondeterministic_seeded in tags
        self.waits = (
            torch.Tag.data_dependent_output in tags
            or torch.Tag.dynamic_output_shape in tags
            or f"{schema.name}.{schema.overload_name}".removesuffix(".") in _CHECKED_ON_THE_HOST
        )
        self.reshapes = (
            torch.Tag.inplace_view in tags
            or self.name in _RESIZING_OPERATORS
            or any(isinstance(place, str) for place in self.mutated)
        )
        self.moves_view = torch.Tag.inplace_view in tags and self.name not in _RESIZING_OPERATORS
        self.takes_host_tensors = self.name in _HOST_TENSOR_OPERATORS
        self.grows = self.name in _GROWING_OPERATORS
        self.run: Callable[[OperatorPlan, Any, Any], Any]


def _written_argument(schema: Any, result: Any, written: dict[str, Place]) -> Place | None:
    """The place of the argument that a result is, where it is written through it."""
    alias = result.alias_info
    if alias is None or not alias.is_write:
        return None
    for argument in schema.arguments:
        info = argument.alias_info
        if info is not None and info.is_write and info.before_set == alias.before_set:
            return written[argument.name]
    return None
