"""Tensors of a simulated device: what they are, show, refuse and share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fakes
from fakes.personas import MUSA

pytestmark = pytest.mark.usefixtures("simulated_machine")


def raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", sorted(MUSA.dtypes, key=str))
def test_copies_are_bit_exact(dtype: torch.dtype) -> None:
    bits = torch.randint(256, (6, 5, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    host = bits.bool() if dtype == torch.bool else bits.view(dtype)
    for shape in (host, host[::2], host.transpose(0, 1), host[:0], host[1, 2, 0], host[..., :1].expand(6, 5, 3)):
        device = shape.to("musa:1")
        assert device.device == torch.device("musa:1")
        assert device.dtype == dtype
        back = device.cpu()
        assert back.shape == shape.shape
        assert torch.equal(raw(back), raw(shape))
        other = torch.empty_like(device, device="musa:0").copy_(device)
        assert torch.equal(raw(other.cpu()), raw(shape))


def test_undeclared_dtypes_are_refused() -> None:
    for make in (
        lambda: torch.empty(2, dtype=torch.complex32, device="musa"),
        lambda: torch.zeros(2, device="musa").to(torch.float8_e4m3fnuz),
        lambda: torch.zeros(2, device="musa").new_empty(2, dtype=torch.uint16),
    ):
        with pytest.raises(TypeError, match="musa device does not support"):
            make()


@pytest.mark.parametrize(
    "make",
    [
        lambda device: torch.tensor([1.5, -2.0], device=device),
        lambda device: torch.arange(6, device=device).view(2, 3),
        lambda device: torch.arange(3, dtype=torch.int32, device=device),
        lambda device: torch.tensor(3.25, device=device),
        lambda device: torch.tensor([True, False], device=device),
        lambda device: torch.tensor([1 + 2j], device=device),
        lambda device: torch.empty(0, device=device),
        lambda device: torch.empty(0, 3, device=device),
        lambda device: torch.empty(0, dtype=torch.int64, device=device),
        lambda device: torch.ones(2, device=device, requires_grad=True),
        lambda device: torch.ones(2, device=device, requires_grad=True) * 2,
        lambda device: torch.nn.Parameter(torch.ones(2, 2, device=device)),
        lambda device: torch.zeros(2000, device=device),
        lambda device: torch.zeros(2, dtype=torch.bfloat16, device=device),
    ],
)
def test_printing_is_the_cpus_with_the_device(make: object) -> None:
    expected, actual = repr(make("cpu")), repr(make("musa:1"))
    assert "device='musa:1'" in actual
    without = actual.replace(", device='musa:1'", "").replace("device='musa:1', ", "")
    # The longer suffix may move to a line of its own.
    assert without.replace(",\n      ", ",").split() == expected.replace(",\n      ", ",").split()


def test_the_host_cannot_look_inside() -> None:
    tensor = torch.ones(3, device="musa:1")
    text = r"can't convert musa:1 device type tensor to numpy\. Use Tensor\.cpu\(\) to copy the tensor to host memory first\."
    for look in (tensor.numpy, lambda: np.asarray(tensor), tensor.__array__, lambda: np.array(tensor)):
        with pytest.raises(TypeError, match=text):
            look()
    with pytest.raises((BufferError, RuntimeError, ValueError)):
        torch.from_dlpack(tensor)
    assert tensor.numpy(force=True).tolist() == [1.0, 1.0, 1.0]
    assert tensor.tolist() == [1.0, 1.0, 1.0]
    assert f"{tensor.sum():.1f}" == "3.0"
    assert int(tensor.sum()) == 3
    assert tensor[0].item() == 1.0
    assert bool(tensor.all())


def test_devices_do_not_mix() -> None:
    first, second, host = torch.ones(3, device="musa:0"), torch.ones(3, device="musa:1"), torch.ones(3)
    text = "Expected all tensors to be on the same device, but found at least two devices"
    for mix in (
        lambda: first + second,
        lambda: first + host,
        lambda: host + first,
        lambda: torch.cat([first, second]),
        lambda: torch.stack([first, host]),
        lambda: first.add_(second),
        lambda: torch.add(first, 1, out=second),
        lambda: torch.add(first, 1, out=host),
        lambda: first[torch.tensor([0], device="musa:1")],
        lambda: torch.ones((), device="musa:0") + host,
        lambda: torch.ones((), device="musa:0") + second,
        lambda: host.add_(torch.ones((), device="musa:0")),
        lambda: torch.nn.functional.linear(first, torch.ones(3, 3)),
        lambda: torch.where(first > 0, first, second),
        lambda: torch._foreach_add([first], [second]),
    ):
        with pytest.raises(RuntimeError, match=text):
            mix()
    assert first.tolist() == second.tolist() == host.tolist() == [1.0] * 3


def test_host_scalars_indices_and_masks_are_taken() -> None:
    tensor = torch.zeros(4, device="musa:1")
    assert (tensor + torch.tensor(2.0)).tolist() == [2.0] * 4
    assert (torch.tensor(2.0) - tensor).device == tensor.device
    tensor[torch.tensor([0, 2])] = 5.0
    assert tensor[torch.tensor([True, False, True, False])].tolist() == [5.0, 5.0]
    tensor.index_put_((torch.tensor([1]),), torch.tensor(7.0, device="musa:1"))
    assert tensor.tolist() == [5.0, 7.0, 5.0, 0.0]


def test_views_share_memory_and_versions() -> None:
    base = torch.arange(6.0, device="musa:1")
    view = base.view(2, 3)[1]
    view.mul_(10)
    assert base.tolist() == [0.0, 1.0, 2.0, 30.0, 40.0, 50.0]
    assert view._version == base._version == 1
    assert view._base is base
    for part in (
        *base.chunk(2),
        *base.split(4),
        base.expand(2, 6),
        base.as_strided((2,), (2,)),
        base.detach(),
        base.unflatten(0, (3, 2)),
    ):
        assert part.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    required = torch.ones(3, device="musa", requires_grad=True)
    squared = required * required
    required.data.add_(1)
    with torch.no_grad():
        required.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.sum().backward()


def test_geometry_changes_in_place() -> None:
    tensor = torch.arange(6, device="musa:1").view(2, 3)
    tensor.t_()
    assert (tensor.shape, tensor.stride(), tensor.tolist()) == ((3, 2), (1, 3), [[0, 3], [1, 4], [2, 5]])
    tensor.unsqueeze_(0).squeeze_(0).transpose_(0, 1)
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
    tensor.resize_(3)
    assert tensor.tolist() == [0, 1, 2]
    out = torch.empty(0, device="musa:1")
    assert torch.add(torch.ones(3, device="musa:1"), 1, out=out) is out
    assert out.tolist() == [2.0] * 3
    out.set_(torch.arange(2.0, device="musa:1"))
    assert out.tolist() == [0.0, 1.0]
    out.set_()
    assert out.numel() == 0
    values, indices = torch.empty(0, device="musa:1"), torch.empty(0, dtype=torch.int64, device="musa:1")
    torch.sort(torch.tensor([2.0, 1.0], device="musa:1"), out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([1.0, 2.0], [1, 0])


def test_conjugate_and_negative_views_write_through() -> None:
    base = torch.tensor([1 + 2j, 3 - 1j], device="musa:1")
    conjugate = base.conj()
    assert conjugate.is_conj()
    conjugate.mul_(2)
    assert base.tolist() == [2 + 4j, 6 - 2j]
    assert conjugate.tolist() == [2 - 4j, 6 + 2j]
    assert conjugate.imag.tolist() == [-4.0, 2.0]
    conjugate.imag.fill_(1)
    assert base.imag.tolist() == [-1.0, -1.0]
    assert (base @ conjugate).item() == (base.cpu() @ conjugate.cpu()).item()
    assert conjugate.resolve_conj().tolist() == conjugate.tolist()
    assert base.real.tolist() == [2.0, 6.0]


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="strided tensors only"):
        torch.ones(3, device="musa").to_sparse()


def test_memory_formats() -> None:
    tensor = torch.randn(2, 3, 4, 5).to("musa:1", memory_format=torch.channels_last)
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    assert (tensor * 2).is_contiguous(memory_format=torch.channels_last)
    assert tensor.contiguous().is_contiguous()
    assert torch.empty_like(tensor).stride() == tensor.stride()
    assert tensor.clone(memory_format=torch.contiguous_format).is_contiguous()
    assert tensor.type() == "torch.musa.FloatTensor"
    assert tensor.is_musa
    assert tensor.get_device() == 1


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_tensors_are_made_of_device_scalars(simulated_machine: fakes.Machine, schedule: str) -> None:
    simulated_machine.reset(schedule=schedule)
    one = torch.ones((), device="musa:1") + 1
    for made in (
        torch.tensor([one, 2]),
        torch.as_tensor([one, one]),
        torch.Tensor([one, one]),
        torch.ones(1).new_tensor([one, one]),
    ):
        assert made.device.type == "cpu"
        assert made.tolist() == [2, 2]
    assert torch.tensor([[one]], device="musa:0").device == torch.device("musa:0")
