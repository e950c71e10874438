"""Parameters that change devices stay the objects that they are, as on hardware."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

import fakes


@pytest.fixture(params=["eager", "seeded"], autouse=True)
def machine(simulated_machine: fakes.Machine, request: pytest.FixtureRequest) -> fakes.Machine:
    simulated_machine.reset(schedule=request.param)
    return simulated_machine


def module_with(parameter: nn.Parameter) -> nn.Module:
    module = nn.Module()
    module.weight = parameter
    return module


def test_a_parameter_stays_itself_with_its_attributes_and_gradient() -> None:
    parameter = nn.Parameter(torch.ones(3))
    parameter.tensor_model_parallel = True  # type: ignore[attr-defined]
    parameter.grad = torch.full((3,), 2.0)
    module = module_with(parameter)
    for device in ("musa:0", "musa:1", "cpu", "musa:1"):
        module.to(device)
        assert module.weight is parameter
        assert isinstance(parameter, nn.Parameter)
        assert parameter.device == torch.device(device)
        assert parameter.grad.device == torch.device(device)
        assert parameter.tensor_model_parallel  # type: ignore[attr-defined]
        assert parameter.grad.tolist() == [2, 2, 2]
        (parameter * 1).sum().backward()
        assert parameter.grad.tolist() == [3, 3, 3]
        parameter.grad -= 1
    module.cpu()
    assert type(parameter) is nn.Parameter
    assert torch.musa.memory_allocated(1) == 0


def test_tied_parameters_stay_tied() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    both = nn.ModuleList([first, second]).to("musa")
    assert both[0].weight is both[1].weight
    both.cpu()
    assert both[0].weight is both[1].weight


def test_an_optimizer_made_before_the_move_updates_the_module() -> None:
    layer = nn.Linear(2, 2, bias=False)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer.to("musa")
    layer(torch.ones(1, 2, device="musa")).sum().backward()
    optimizer.step()
    assert torch.equal(layer.weight.cpu(), before - 1)


def test_hooks_move_along() -> None:
    parameter, called = nn.Parameter(torch.ones(2)), []
    parameter.register_hook(lambda gradient: called.append("gradient"))
    parameter.register_post_accumulate_grad_hook(lambda tensor: called.append("accumulated"))
    module = module_with(parameter).to("musa")
    (module.weight * 2).sum().backward()
    assert called == ["gradient", "accumulated"]


def test_what_has_weak_references_is_replaced() -> None:
    parameter = nn.Parameter(torch.ones(2))
    reference = weakref.ref(parameter)
    module = module_with(parameter).to("musa")
    assert module.weight.device.type == "musa"
    assert reference() is parameter


def test_data_goes_to_the_host_and_back() -> None:
    parameter = nn.Parameter(torch.ones(2, device="musa"))
    parameter.data = parameter.detach().cpu().pin_memory()
    assert parameter.device.type == "cpu"
    parameter.data = parameter.data.to("musa:1", non_blocking=True)
    assert parameter.device == torch.device("musa:1")
    assert parameter.tolist() == [1, 1]


def test_a_lazy_module_gets_its_shape_on_the_device() -> None:
    layer = nn.LazyLinear(3)
    layer.to("musa:1")
    assert layer(torch.ones(1, 2, device="musa:1")).shape == (1, 3)
    assert layer.weight.device == torch.device("musa:1")
    assert layer.weight.shape == (3, 2)
    host = nn.LazyLinear(3)
    assert host(torch.ones(1, 2)).device.type == "cpu"
