"""Small models trained on a simulated device give the CPU's results bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("simulated_machine")


class Attention(nn.Module):
    """Embedding, attention and layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        mixed, _ = self.attention(hidden, hidden, hidden)
        return self.head(self.norm(hidden + mixed))


def perceptron() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return (
        nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.BatchNorm1d(16), nn.Linear(16, 4)),
        torch.randn(8, 6),
        torch.randint(4, (8,)),
    )


def convolution() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 4)
    return nn.Sequential(*layers), torch.randn(4, 3, 8, 8), torch.randint(4, (4,))


def channels_last() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    # No group norm here: PyTorch itself makes its input contiguous on every device but the CPU, which rounds differently.
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 4)
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    return model, torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last), torch.randint(4, (4,))


def attention() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return Attention(), torch.randint(11, (3, 5)), torch.randint(11, (3, 5))


def train(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, optimizer: Callable[..., torch.optim.Optimizer]
) -> list[torch.Tensor]:
    steps = optimizer(model.parameters())
    losses = []
    for _ in range(4):
        steps.zero_grad()
        output = model(inputs)
        loss = nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), targets.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
        losses.append(loss.detach())
    return [*losses, *(parameter.detach() for parameter in model.parameters()), *model.buffers()]


OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, foreach=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True),
}


@pytest.mark.parametrize("device", ["musa:0", "musa:1"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", [perceptron, convolution, channels_last, attention], ids=lambda make: make.__name__)
def test_training_equals_the_cpu_bit_for_bit(
    make: Callable[..., tuple[nn.Module, torch.Tensor, torch.Tensor]], optimizer: str, device: str
) -> None:
    torch.manual_seed(0)
    model, inputs, targets = make()
    expected = train(copy.deepcopy(model), inputs, targets, OPTIMIZERS[optimizer])
    actual = train(copy.deepcopy(model).to(device), inputs.to(device), targets.to(device), OPTIMIZERS[optimizer])
    assert {tensor.device for tensor in actual} == {torch.device(device)}
    for one, other in zip(expected, actual, strict=True):
        assert torch.equal(one, other.cpu())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_layers_are_close_to_the_cpu(kind: type[nn.Module], bias: bool) -> None:
    # Not bit for bit: on every accelerator PyTorch uses fused cells, which add the biases in another order.
    torch.manual_seed(0)
    layer = kind(6, 7, num_layers=2, batch_first=True, bidirectional=True, bias=bias)
    twin = copy.deepcopy(layer).to("musa:1")
    inputs = torch.randn(4, 5, 6)
    expected, actual = layer(inputs)[0], twin(inputs.to("musa:1"))[0]
    torch.testing.assert_close(actual.cpu(), expected)
    expected.square().sum().backward()
    actual.square().sum().backward()
    for one, other in zip(layer.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-4, atol=1e-5)


def test_fused_attention_is_close_to_the_cpu() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8).unbind()
    expected = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    actual = nn.functional.scaled_dot_product_attention(query.musa(), key.musa(), value.musa(), is_causal=True)
    torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("training", [True, False])
def test_transformer_encoder_is_close_to_the_cpu(training: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).train(training)
    twin = copy.deepcopy(layer).to("musa:1")
    inputs = torch.randn(2, 5, 8)
    with torch.set_grad_enabled(training):
        torch.testing.assert_close(twin(inputs.to("musa:1")).cpu(), layer(inputs))


def test_gradients_accumulate_and_checkpointing_recomputes() -> None:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    layer = nn.Linear(5, 5)
    twin = copy.deepcopy(layer).to("musa:1")
    inputs = torch.randn(2, 5)
    for model, batch in ((layer, inputs), (twin, inputs.to("musa:1"))):
        for _ in range(2):
            checkpoint(lambda x, model=model: model(x).tanh(), batch, use_reentrant=False).sum().backward()
    assert torch.equal(layer.weight.grad, twin.weight.grad.cpu())


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_draws_the_same_numbers_again(use_reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    layer = nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5)).to("musa:1")
    gradients = []
    for run in (layer, lambda x: checkpoint(layer, x, use_reentrant=use_reentrant)):
        inputs = torch.ones(2, 5, device="musa:1", requires_grad=True)
        torch.manual_seed(1)
        run(inputs).sum().backward()
        gradients.append(inputs.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("activation", [nn.functional.silu, nn.functional.mish])
def test_backward_of_activations_is_that_of_the_cpu(activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
    values = torch.randn(100, generator=torch.Generator().manual_seed(1))
    host, device = values.clone().requires_grad_(), values.to("musa").requires_grad_()
    activation(host).sin().sum().backward()
    activation(device).sin().sum().backward()
    assert torch.equal(device.grad.cpu(), host.grad)


def test_hooks_custom_functions_and_second_derivatives() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * 3 * x**2

    x = torch.tensor([1.0, 2.0], device="musa:1", requires_grad=True)
    seen = []
    y = Cube.apply(x)
    y.register_hook(lambda gradient: seen.append(gradient.device))
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert seen == [torch.device("musa:1")]
    assert second.tolist() == [6.0, 12.0]


def test_model_parallel_over_two_devices() -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    inputs = torch.randn(4, 3)
    second(first(inputs)).sum().backward()
    expected = [first.weight.grad.clone(), second.weight.grad.clone()]
    first.zero_grad()
    second.zero_grad()
    first.to("musa:0")
    second.to("musa:1")
    second(first(inputs.to("musa:0")).to("musa:1")).sum().backward()
    assert torch.equal(first.weight.grad.cpu(), expected[0])
    assert torch.equal(second.weight.grad.cpu(), expected[1])


def test_parameter_data_can_move_in_place() -> None:
    parameter = nn.Parameter(torch.arange(3.0))
    alias = parameter
    parameter.data = parameter.data.to("musa:1")
    assert alias.device == torch.device("musa:1")
    assert isinstance(alias, nn.Parameter)
    parameter.data.add_(1)
    assert parameter.tolist() == [1.0, 2.0, 3.0]
    parameter.data = torch.ones(5, device="musa:1")
    assert parameter.shape == (5,)
    (parameter * 2).sum().backward()
    assert parameter.grad.tolist() == [2.0] * 5
