"""`torch.compile` and `torch.jit.script` while a machine is installed, and after."""

from __future__ import annotations

import torch
from torch import nn

import fakes


def twice(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2 + torch.zeros(2, device=tensor.device)


def test_compiled_functions_and_modules_run_uncompiled(simulated_machine: fakes.Machine) -> None:
    compiled = torch.compile(twice, fullgraph=True)
    assert compiled(torch.ones(2, device="musa")).tolist() == [2, 2]
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    layer = torch.compile(nn.Linear(2, 2).to("musa"))
    layer(torch.ones(1, 2, device="musa")).sum().backward()
    assert layer.weight.grad.tolist() == [[1, 1], [1, 1]]
    from torch._dynamo import eval_frame

    assert eval_frame._stance.stance == "force_eager"
    simulated_machine.uninstall()
    assert eval_frame._stance.stance == "default"


def test_script_takes_factories(simulated_machine: fakes.Machine) -> None:
    scripted = torch.jit.script(twice)
    assert scripted(torch.ones(2, device="musa")).tolist() == [2, 2]
    _, tangent = torch.func.jvp(torch.sin, (torch.zeros(2, device="musa"),), (torch.ones(2, device="musa"),))
    assert tangent.tolist() == [1, 1]
    simulated_machine.uninstall()
    assert torch.jit.script(twice)(torch.ones(2)).tolist() == [2, 2]
