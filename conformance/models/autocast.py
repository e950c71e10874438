"""Which dtype a matrix product has inside nested autocast contexts.

For: AMP-1. Not for: operators that autocast leaves alone or computes in float32; vendors' lists differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass
class AutocastModel:
    """`default` is the dtype of a context that names none. The stack holds the dtype of each open context, None where disabled."""

    default: torch.dtype
    stack: list[torch.dtype | None] = field(default_factory=list)

    def enter(self, dtype: torch.dtype | None, enabled: bool) -> None:
        """A context is entered."""
        self.stack.append((dtype or self.default) if enabled else None)

    def leave(self) -> None:
        """The innermost context is left, by an exception or not."""
        self.stack.pop()

    def product(self, inputs: torch.dtype) -> torch.dtype:
        """The dtype of a product of float32 or half inputs."""
        inner = self.stack[-1] if self.stack else None
        return inputs if inner is None else inner
