"""Storages of simulated devices: their bytes are waited for, and written in the order of the stream."""

from __future__ import annotations

import io
import pickle

import pytest
import torch

import fakes

FIVES = [0, 0, 160, 64] * 2


@pytest.fixture(params=["eager", "lazy", "seeded"], autouse=True)
def machine(simulated_machine: fakes.Machine, request: pytest.FixtureRequest) -> fakes.Machine:
    simulated_machine.reset(schedule=request.param)
    return simulated_machine


def fives() -> torch.Tensor:
    return torch.ones(2, device="musa:1") + 4


def test_bytes_are_waited_for() -> None:
    storage = fives().untyped_storage()
    assert list(storage) == FIVES
    assert fives().untyped_storage().tolist() == FIVES
    assert fives().untyped_storage()[2] == 160
    assert fives().untyped_storage()[4:].tolist() == FIVES[4:]
    assert str(fives().untyped_storage()).split()[:4] == ["0", "0", "160", "64"]


def test_pickling_and_the_older_file_format_wait() -> None:
    loaded = pickle.loads(pickle.dumps(fives()))
    assert loaded.device == torch.device("musa:1")
    assert loaded.tolist() == [5, 5]
    file = io.BytesIO()
    torch.save(fives(), file, _use_new_zipfile_serialization=False)
    file.seek(0)
    assert torch.load(file, map_location="cpu").tolist() == [5, 5]


def test_writes_go_with_the_stream() -> None:
    tensor = fives()
    tensor.untyped_storage().fill_(0)
    assert tensor.tolist() == [0, 0]
    tensor.untyped_storage().copy_(fives().untyped_storage())
    assert tensor.tolist() == [5, 5]
    tensor.untyped_storage()[2] = 0
    assert tensor.tolist() != [5, 5]
    tensor.untyped_storage().copy_(torch.ones(2).untyped_storage())
    assert tensor.tolist() == [1, 1]
    host = torch.zeros(2)
    host.untyped_storage().copy_(fives().untyped_storage())
    assert host.tolist() == [5, 5]


def test_a_new_storage_is_empty_and_on_the_device() -> None:
    new = fives().untyped_storage().new()
    assert new.nbytes() == 0
    assert new.device == torch.device("musa:1")
    assert repr(new).endswith("of size 0]")
