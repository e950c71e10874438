"""The order in which work runs on a simulated device.

For: `issue`, by which work that is no PyTorch operator (a collective) takes part in that order. Not for: what an operator does
(`fakes.dispatch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fakes.stream_state import StreamState

__all__ = ["issue"]


def issue(
    kernel: Callable[[], Any],
    reads: Sequence[torch.Tensor],
    writes: Sequence[torch.Tensor],
    stream: StreamState,
    *,
    name: str = "kernel",
    waits: Sequence[Any] = (),
) -> Any:
    """Have a host callable run as a kernel of a stream; returns a ticket for its completion.

    `reads` and `writes` are the device tensors (or pinned host tensors) that it touches. It gets no argument: it closes over their
    host bytes, `fakes.tensor.host_tensor(tensor)`. `waits` are tickets (of `issue` or `Scheduler.mark`) that it runs after, besides
    the earlier work of the stream. To let a stream wait for it: record an event on the kernel's stream, and wait for that.
    Under `eager` it runs before this function returns; otherwise when the scheduler chooses, in any thread, with the machine's
    lock held, so it must not issue work itself.
    """
    from fakes.machine import current_machine
    from fakes.tensor import DeviceTensor, host_tensor

    def host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [host_tensor(tensor) if isinstance(tensor, DeviceTensor) else tensor for tensor in tensors]

    return current_machine().scheduler.issue(kernel, host(reads), host(writes), stream, name=name, waits=waits)
