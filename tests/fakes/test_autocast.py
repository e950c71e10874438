"""Autocast on a simulated device."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("simulated_machine")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtypes_inside_nested_and_after_an_exception(dtype: torch.dtype) -> None:
    x = torch.randn(4, 4, device="musa:1")
    with pytest.raises(KeyError), torch.autocast("musa", dtype=dtype):
        assert (x @ x).dtype == dtype
        assert (x.to(torch.float16) @ x.to(torch.float16)).dtype == dtype
        assert nn.functional.linear(x, x).dtype == dtype
        assert torch.bmm(x[None], x[None]).dtype == dtype
        assert torch.exp(x.to(dtype)).dtype == torch.float32
        assert torch.softmax(x.to(dtype), 0).dtype == torch.float32
        assert torch.cat([x, x.to(dtype)]).dtype == torch.float32
        assert torch.addcmul(x.to(dtype), x, x).dtype == torch.float32
        assert (x + x).dtype == torch.float32
        assert (x.double() @ x.double()).dtype == torch.float64
        with torch.autocast("musa", enabled=False):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == dtype
        raise KeyError
    assert (x @ x).dtype == torch.float32


def test_the_namespaces_own_classes() -> None:
    x = torch.randn(3, 3, device="musa")
    with torch.musa.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    assert torch.amp.is_autocast_available("musa")
    assert torch.musa.is_bf16_supported()


def test_training_under_autocast_keeps_float32_parameters_and_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)).to("musa:1")
    scaler = torch.musa.amp.GradScaler()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with torch.autocast("musa", dtype=torch.float16):
        output = model(torch.randn(5, 4, device="musa:1"))
        assert output.dtype == torch.float16
        loss = nn.functional.mse_loss(output, torch.zeros(5, 2, device="musa:1"))
    assert loss.dtype == torch.float32
    scaler.scale(loss).backward()
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}
    scaler.step(optimizer)
    scaler.update()
    assert not all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


def test_autocast_of_another_type_does_nothing_here() -> None:
    x = torch.randn(3, 3, device="musa")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32
    with torch.autocast("musa", dtype=torch.bfloat16):
        assert (torch.randn(3, 3) @ torch.randn(3, 3)).dtype == torch.float32


def test_unsafe_loss_is_refused() -> None:
    x = torch.rand(3, device="musa")
    with torch.autocast("musa", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        nn.functional.binary_cross_entropy(x, x)


def test_unsupported_dtype_warns_and_is_off_as_pytorch_does() -> None:
    x = torch.randn(3, 3, device="musa")
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("musa", dtype=torch.float64):
        assert (x @ x).dtype == torch.float32


def test_autocast_belongs_to_the_thread() -> None:
    x = torch.randn(3, 3, device="musa")
    seen = []
    with torch.autocast("musa", dtype=torch.bfloat16):
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join(60)
    assert seen == [torch.float32]
