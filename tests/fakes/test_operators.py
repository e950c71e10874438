"""Operators on a simulated device agree with the CPU: values, dtypes, strides and aliasing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("simulated_machine")

Place = Callable[[torch.Tensor], torch.Tensor]


def inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        "x": torch.randn(4, 6, generator=generator),
        "y": torch.randn(4, 6, generator=generator),
        "square": torch.randn(4, 4, generator=generator) + 5 * torch.eye(4),
        "image": torch.randn(2, 3, 8, 8, generator=generator),
        "kernel": torch.randn(5, 3, 3, 3, generator=generator),
        "ids": torch.randint(0, 4, (7,), generator=generator),
        "small": torch.randint(0, 4, (7,), generator=generator).to(torch.int32),
        "columns": torch.randint(0, 6, (4, 3), generator=generator),
        "mask": torch.rand(4, 6, generator=generator) > 0.5,
        "empty": torch.empty(0, 6),
        "scalar": torch.tensor(1.5),
        "strided": torch.randn(6, 4, generator=generator).t(),
        "complex": torch.randn(3, 4, dtype=torch.complex64, generator=generator),
        "edge": torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-45, 3.4e38]),
    }


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda t: (t.x + t.y * 2 - t.y / 3) ** 2 % 1.5,
    "scalar promotion": lambda t: (t.ids + 1.5, t.small + t.ids, t.x * t.scalar, t.small / 2),
    "comparison": lambda t: (t.x > t.y, t.x.eq(0), t.edge.isnan(), t.edge == t.edge),
    "edges": lambda t: (t.edge.exp(), t.edge.sqrt(), t.edge.sign(), t.edge.sort().values, t.edge.nan_to_num(), t.edge * 0),
    "gather": lambda t: t.x.gather(1, t.columns),
    "scatter_add": lambda t: torch.zeros_like(t.x).scatter_add(1, t.columns, t.x[:, :3]),
    "index_select": lambda t: t.x.index_select(0, t.ids),
    "index": lambda t: (t.x[t.ids], t.x[t.mask], t.x[..., None, 1:5:2], t.x[t.ids[:3], t.ids[3:6]], t.x[:, t.ids]),
    "index_put": lambda t: t.x.clone().index_put((t.ids,), t.scalar, accumulate=True),
    "masked_fill": lambda t: t.x.masked_fill(t.mask, -1),
    "masked_select": lambda t: t.x.masked_select(t.mask),
    "nonzero": lambda t: (t.mask.nonzero(), t.mask.nonzero(as_tuple=True)),
    "unique": lambda t: t.ids.unique(return_inverse=True, return_counts=True),
    "bincount": lambda t: (t.ids.bincount(minlength=9), t.small.bincount()),
    "repeat_interleave": lambda t: t.ids.repeat_interleave(t.ids),
    "topk": lambda t: t.x.topk(3, dim=1),
    "sort": lambda t: (t.x.sort(dim=0, descending=True), t.ids.argsort(stable=True)),
    "cumsum": lambda t: (t.x.cumsum(1), t.ids.cumsum(0), t.small.cumsum(0)),
    "remainder": lambda t: (t.ids.remainder(3), t.ids % -3, t.small.fmod(2)),
    "cat and chunk": lambda t: (torch.cat([t.x, t.empty, t.y]), t.x.chunk(4, 1), torch.stack([t.x, t.y]), t.x.split([1, 5], 1)),
    "reductions": lambda t: (t.x.sum(), t.x.mean(0), t.x.std(1), t.x.max(1), t.x.argmin(), t.empty.sum(), t.mask.any(), t.x.norm()),
    "where": lambda t: torch.where(t.mask, t.x, t.y),
    "matmul": lambda t: (
        t.x @ t.y.t(),
        t.strided.t() @ t.x,
        torch.einsum("ab,ab->a", t.x, t.y),
        torch.baddbmm(t.x[None], t.x[None, :, :4], t.x[None]),
    ),
    "linear algebra": lambda t: (t.square.inverse(), torch.linalg.det(t.square), torch.linalg.solve(t.square, t.x)),
    "complex": lambda t: (
        t.complex * t.complex.conj(),
        t.complex.abs(),
        t.complex.conj().imag,
        t.complex @ t.complex.mH,
        torch.view_as_real(t.complex),
    ),
    "fft": lambda t: (torch.fft.rfft(t.x), torch.fft.ifft(torch.fft.fft(t.x)).real),
    "views": lambda t: (
        t.x.view(6, 4),
        t.x.t(),
        t.x.unfold(1, 3, 2),
        t.x.diagonal(),
        t.x.expand(2, 4, 6),
        t.x.flatten(),
        t.x.view(torch.int32),
    ),
    "casts": lambda t: [
        t.x.to(dtype) for dtype in (torch.float64, torch.bfloat16, torch.half, torch.int8, torch.bool, torch.float8_e4m3fn)
    ],
    "convolution": lambda t: functional.conv2d(t.image, t.kernel, padding=1, stride=2),
    "pooling": lambda t: (functional.max_pool2d(t.image, 2, return_indices=True), functional.adaptive_avg_pool2d(t.image, 3)),
    "interpolate": lambda t: functional.interpolate(t.image, scale_factor=1.5, mode="bilinear", align_corners=False),
    "normalization": lambda t: (functional.layer_norm(t.x, (6,)), functional.softmax(t.x, 1), functional.group_norm(t.image, 3)),
    "losses": lambda t: (
        functional.cross_entropy(t.x, t.ids[:4]),
        functional.mse_loss(t.x, t.y),
        functional.kl_div(t.x, t.y.softmax(1), reduction="sum"),
    ),
    "embedding": lambda t: (
        functional.embedding(t.ids, t.x),
        functional.one_hot(t.ids, 4),
        functional.embedding_bag(t.columns, t.y.t()),
    ),
    "foreach": lambda t: (torch._foreach_add([t.x, t.y], 2.0), torch._foreach_norm([t.x, t.y])),
    "strides": lambda t: (
        t.strided * 2,
        t.strided + t.x,
        torch.empty_like(t.strided).fill_(1),
        t.strided.contiguous(),
        t.strided.clone(),
    ),
    "empties": lambda t: (t.empty + 1, t.empty.t() @ t.empty, t.empty.max(1), t.empty.cumsum(0), t.empty[t.ids[:0]]),
    "host answers": lambda t: (
        t.x.tolist(),
        t.ids.sum().item(),
        torch.equal(t.x, t.x),
        torch.allclose(t.x, t.y),
        bool(t.mask.all()),
        len(t.x),
    ),
    "packed sequences": lambda t: tuple(
        torch.nn.utils.rnn.pad_packed_sequence(torch.nn.utils.rnn.pack_padded_sequence(t.x[..., None], [6, 5, 3, 1], True))
    ),
}


class Namespace:
    """The inputs, in one place."""

    def __init__(self, place: Place) -> None:
        self.__dict__.update({name: place(value) for name, value in inputs().items()})


def leaves(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize("name", OPERATORS)
def test_agreement_with_the_cpu(name: str) -> None:
    expected = leaves(OPERATORS[name](Namespace(lambda tensor: tensor)))
    actual = leaves(OPERATORS[name](Namespace(lambda tensor: tensor.to("musa:1"))))
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual, strict=True):
        if not isinstance(one, torch.Tensor):
            assert one == other
            continue
        if name != "packed sequences" or one.dtype != torch.int64:
            assert other.device == torch.device("musa:1")
        assert (other.dtype, other.shape, other.stride()) == (one.dtype, one.shape, one.stride())
        torch.testing.assert_close(other.cpu(), one, rtol=0, atol=0, equal_nan=True)


IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "add_": lambda x: x.add_(1),
    "slice assignment": lambda x: x.__setitem__((slice(1, 3), slice(None, None, 2)), 7.0),
    "mask assignment": lambda x: x.__setitem__(x > 0, 0.0),
    "row assignment": lambda x: x.__setitem__(0, x[1].clone()),
    "fill_": lambda x: x[:, 1].fill_(3),
    "zero_": lambda x: x.t()[2:].zero_(),
    "copy_": lambda x: x[0].copy_(torch.arange(6)),
    "clamp_": lambda x: x.clamp_(-1, 1),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0, 0, 1], device=x.device), x[:3].clone()),
    "lerp out": lambda x: torch.lerp(x, x * 2, 0.5, out=x),
    "foreach": lambda x: torch._foreach_mul_([x[0], x[1]], 2.0),
    "sort out": lambda x: torch.sort(x.clone(), out=(x, torch.empty(4, 6, dtype=torch.int64, device=x.device))),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operators_change_every_alias(name: str) -> None:
    host = inputs()["x"]
    device = host.to("musa:1")
    alias = device.view(-1)
    IN_PLACE[name](host)
    IN_PLACE[name](device)
    assert torch.equal(alias.cpu(), host.reshape(-1))


def test_operators_return_the_very_objects_that_they_write() -> None:
    x = torch.ones(3, device="musa")
    assert x.add_(1) is x
    out = torch.empty(3, device="musa")
    assert torch.mul(x, 2, out=out) is out
    assert x.to("musa") is x
    assert x.contiguous() is x
    assert x.musa() is x


def test_wrong_calls_fail_in_pytorchs_words() -> None:
    x = torch.ones(2, 3, device="musa")
    for wrong, error, text in (
        (lambda: x @ x, RuntimeError, "mat1 and mat2 shapes cannot be multiplied"),
        (lambda: x[5], IndexError, "out of bounds"),
        (lambda: x.view(4), RuntimeError, "is invalid for input of size 6"),
        (lambda: x.sum(4), IndexError, "Dimension out of range"),
        (lambda: x + torch.ones(4, device="musa"), RuntimeError, "must match the size"),
        (x.item, RuntimeError, "cannot be converted to Scalar"),
    ):
        with pytest.raises(error, match=text):
            wrong()
    assert torch.musa.memory_allocated() == 512
