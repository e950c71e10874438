"""Saving, loading, copying and pickling tensors of a simulated device."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("simulated_machine")


def saved_and_loaded(value: Any, **keywords: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **keywords)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(
    ("map_location", "expected"),
    [
        (None, "musa:1"),
        ("cpu", "cpu"),
        ("musa:0", "musa:0"),
        ("musa", "musa:0"),
        (lambda storage, location: storage.to(device="musa:0"), "musa:0"),
        ({"musa:1": "musa:0"}, "musa:0"),
        ({"musa:0": "cpu"}, "musa:1"),
        (lambda storage, location: storage, "cpu"),
        (lambda storage, location: storage.musa(0), "musa:0"),
        (lambda storage, location: None, "musa:1"),
        ("meta", "meta"),
    ],
)
def test_map_location(map_location: Any, expected: str, weights_only: bool) -> None:
    tensor = torch.arange(6.0, device="musa:1").view(2, 3)
    loaded = saved_and_loaded({"t": tensor, "row": tensor[1]}, map_location=map_location, weights_only=weights_only)
    assert loaded["t"].device == torch.device(expected)
    if expected != "meta":
        assert torch.equal(loaded["t"].cpu(), tensor.cpu())
        loaded["t"].zero_()
        assert loaded["row"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("location", ["musa:7", {"musa:1": "musa:2"}, "musa:5"])
def test_an_absent_device_is_refused(location: Any) -> None:
    with pytest.raises(RuntimeError, match=r"device_count\(\) is 2"):
        saved_and_loaded(torch.ones(2, device="musa:1"), map_location=location)


def test_host_checkpoints_load_onto_the_device() -> None:
    loaded = saved_and_loaded(nn.Linear(3, 3).state_dict(), map_location="musa:1")
    assert {tensor.device for tensor in loaded.values()} == {torch.device("musa:1")}
    assert torch.musa.memory_allocated(1) == 1024


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_dtypes_and_strides_round_trip(dtype: torch.dtype) -> None:
    tensor = torch.arange(12).view(3, 4).to(dtype).to("musa:1").t()[1:]
    loaded = saved_and_loaded(tensor)
    assert (loaded.dtype, loaded.stride(), loaded.storage_offset()) == (dtype, tensor.stride(), tensor.storage_offset())
    assert torch.equal(loaded.cpu().to(torch.complex64), tensor.cpu().to(torch.complex64))


def test_parameters_and_modules_round_trip() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to("musa:1")
    loaded = saved_and_loaded(model, weights_only=False)
    assert isinstance(loaded[0].weight, nn.Parameter)
    assert loaded[0].weight.requires_grad
    assert loaded[1].running_mean.device == torch.device("musa:1")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 2, device="musa:1")).sum().backward()
    optimizer.step()
    fresh = torch.optim.AdamW(model.parameters())
    fresh.load_state_dict(saved_and_loaded(optimizer.state_dict()))
    states = zip(optimizer.state.values(), fresh.state.values(), strict=True)
    assert all(torch.equal(one["exp_avg"], other["exp_avg"]) for one, other in states)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))], ids=["deepcopy", "pickle"])
def test_copies_are_independent_and_share_among_themselves(duplicate: Any) -> None:
    tensor = torch.arange(4.0, device="musa:1").requires_grad_()
    (tensor * 2).sum().backward()
    copied = duplicate(tensor)
    assert copied.device == tensor.device
    assert copied.requires_grad
    with torch.no_grad():
        copied.add_(1)
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert type(copied) is type(tensor)


def test_deepcopy_keeps_gradients_sharing_and_attributes() -> None:
    base = torch.arange(4.0, device="musa:1")
    base.tag = ["mine"]
    base.grad = torch.ones(4, device="musa:1")
    one, view = copy.deepcopy((base, base[2:]))
    one.zero_()
    assert view.tolist() == [0.0, 0.0]
    assert one.grad.tolist() == [1.0] * 4
    assert one.tag == ["mine"]
    assert one.tag is not base.tag
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(base.clone().requires_grad_() * 2)
    assert isinstance(copy.deepcopy(nn.Linear(1, 1).to("musa")).weight, nn.Parameter)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_say_where_they_are() -> None:
    tensor = torch.arange(4, device="musa:1")
    storage = tensor.untyped_storage()
    assert storage.device == torch.device("musa:1")
    assert storage.nbytes() == 32
    assert tensor[1:].untyped_storage().data_ptr() == storage.data_ptr() == tensor.data_ptr()
    assert tensor[1:].data_ptr() == tensor.data_ptr() + 8
    assert storage.cpu().device == torch.device("cpu")
    assert storage.is_musa
    assert torch.is_storage(storage)
    assert saved_and_loaded(storage).device == storage.device
    assert not torch.zeros(1).untyped_storage().is_musa
    assert storage.clone().device == storage.device
    assert storage.to(device="musa:1") is storage
    moved = torch.empty(0, dtype=torch.int64, device="musa:0").set_(storage.to(device="musa:0"))
    assert moved.tolist() == [0, 1, 2, 3]
    for wrong in (storage, torch.zeros(2).untyped_storage()):
        with pytest.raises(RuntimeError, match="devices must match"):
            torch.empty(0, device="musa:0").set_(wrong)


def test_conjugates_and_negatives_keep_their_values() -> None:
    values = torch.tensor([1 + 2j, 3 - 4j], device="musa:1")
    for tensor in (values.conj(), values.conj().imag, values.imag):
        file = io.BytesIO()
        torch.save(tensor, file)
        for place in (None, "cpu", "musa:0"):
            file.seek(0)
            assert torch.equal(torch.load(file, map_location=place).cpu() + 0, tensor.cpu() + 0)
        assert torch.equal(copy.deepcopy(tensor).cpu(), tensor.cpu())
        torch.save(tensor.cpu(), file := io.BytesIO())
        file.seek(0)
        assert torch.equal((torch.load(file, map_location="musa") + 0).cpu(), tensor.cpu() + 0)
