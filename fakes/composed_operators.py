"""Operators that PyTorch asks an accelerator for but has no CPU kernel of.

For: host kernels written with other operators, one for each such operator. Not for: anything that the CPU computes itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
Tensors = tuple[torch.Tensor | None, ...]


def _lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cell: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> Tensors:
    gates = _with_bias(input_gates, input_bias) + _with_bias(hidden_gates, hidden_bias)
    entered, forgotten, proposed, shown = gates.chunk(4, 1)
    entered, forgotten, proposed, shown = entered.sigmoid(), forgotten.sigmoid(), proposed.tanh(), shown.sigmoid()
    new_cell = forgotten * cell + entered * proposed
    return shown * new_cell.tanh(), new_cell, aten.cat.default([entered, forgotten, proposed, shown], 1)


def _lstm_cell_backward(
    grad_hidden: torch.Tensor | None,
    grad_cell: torch.Tensor | None,
    cell: torch.Tensor,
    new_cell: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,
) -> Tensors:
    entered, forgotten, proposed, shown = workspace.chunk(4, 1)
    squashed = new_cell.tanh()
    on_cell = aten.zeros_like.default(new_cell) if grad_cell is None else grad_cell
    on_shown = aten.zeros_like.default(new_cell)
    if grad_hidden is not None:
        on_cell = on_cell + grad_hidden * shown * (1 - squashed * squashed)
        on_shown = grad_hidden * squashed * shown * (1 - shown)
    gates = aten.cat.default(
        [
            on_cell * proposed * entered * (1 - entered),
            on_cell * cell * forgotten * (1 - forgotten),
            on_cell * entered * (1 - proposed * proposed),
            on_shown,
        ],
        1,
    )
    return gates, on_cell * forgotten, gates.sum(0) if has_bias else None


def _gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hidden: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> Tensors:
    from_input = _with_bias(input_gates, input_bias).chunk(3, 1)
    from_hidden = _with_bias(hidden_gates, hidden_bias).chunk(3, 1)
    reset = (from_input[0] + from_hidden[0]).sigmoid()
    update = (from_input[1] + from_hidden[1]).sigmoid()
    proposed = (from_input[2] + reset * from_hidden[2]).tanh()
    workspace = aten.cat.default([reset, update, proposed, hidden, from_hidden[2]], 1)
    return proposed + update * (hidden - proposed), workspace


def _gru_cell_backward(grad_hidden: torch.Tensor, workspace: torch.Tensor, has_bias: bool) -> Tensors:
    reset, update, proposed, hidden, from_hidden = workspace.chunk(5, 1)
    on_proposed = grad_hidden * (1 - update) * (1 - proposed * proposed)
    on_update = grad_hidden * (hidden - proposed) * update * (1 - update)
    on_reset = on_proposed * from_hidden * reset * (1 - reset)
    on_input = aten.cat.default([on_reset, on_update, on_proposed], 1)
    on_hidden = aten.cat.default([on_reset, on_update, on_proposed * reset], 1)
    biases = (on_input.sum(0), on_hidden.sum(0)) if has_bias else (None, None)
    return on_input, on_hidden, grad_hidden * update, *biases


def _with_bias(gates: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return gates if bias is None else gates + bias


KERNELS: dict[Any, Callable[..., Any]] = {
    # Autograd's zeros without memory: here they have some.
    aten._efficientzerotensor.default: aten.zeros.default,
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
}
"""The host kernel of each operator."""
