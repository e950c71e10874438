"""The operators whose cost is measured, each on one 4 × 4 tensor. Not for: measuring it (`test_operator_cost.py` and its like)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Operator = Callable[[torch.Tensor], Any]
OPERATORS: dict[str, Operator] = {
    "add": lambda tensor: tensor + tensor,
    "add_": lambda tensor: tensor.add_(tensor),
    "view": lambda tensor: tensor.view(16),
    "matmul": lambda tensor: tensor @ tensor,
    "sum": lambda tensor: tensor.sum(0),
}
