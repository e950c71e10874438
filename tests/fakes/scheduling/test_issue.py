"""Work that is no operator, issued on a stream."""

from __future__ import annotations

import torch

from fakes import Machine
from fakes.scheduling import issue
from fakes.tensor import host_tensor


def test_a_kernel_of_ones_own_runs_on_the_stream_and_its_ticket_tells(simulated_machine: Machine) -> None:
    tensor = torch.zeros(3, device="musa")
    stream = simulated_machine.current_stream(0)
    data = host_tensor(tensor)  # type: ignore[arg-type]
    ticket = issue(lambda: data.add_(1), [tensor], [tensor], stream, name="add one")
    torch.musa.synchronize()  # type: ignore[attr-defined]
    assert simulated_machine.scheduler.is_complete(ticket)
    assert tensor.tolist() == [1, 1, 1]
