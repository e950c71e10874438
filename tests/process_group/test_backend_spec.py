"""Backend strings as values."""

from __future__ import annotations

import pytest
import torch.distributed

from harness.errors import BackendSpecError, BackendSpecTypeError
from harness.process_group import BackendEntry, BackendSpec


@pytest.mark.parametrize("text", ["gloo", "nccl", "my_nccl_plugin", "cpu:gloo", "cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo"])
def test_canonical_strings_print_as_they_are_read(text: str) -> None:
    assert str(BackendSpec.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" NCCL\t", "nccl"),
        ("\nGloo", "gloo"),
        ("CPU:GLOO,Cuda:Nccl", "cpu:gloo,cuda:nccl"),
        (" cpu : gloo , cuda: nccl ", "cpu:gloo,cuda:nccl"),
    ],
)
def test_case_and_spaces_do_not_matter(text: str, canonical: str) -> None:
    spec = BackendSpec.parse(text)
    assert str(spec) == canonical
    assert spec == BackendSpec.parse(canonical)


def test_pytorchs_own_string_class_is_read() -> None:
    assert str(BackendSpec.parse(torch.distributed.Backend("GLOO"))) == "gloo"


def test_the_parts_of_a_composite_keep_their_order() -> None:
    spec = BackendSpec.parse("xpu:xccl,cpu:gloo")
    assert spec.devices == ("xpu", "cpu")
    assert list(spec) == [BackendEntry("xpu", "xccl"), BackendEntry("cpu", "gloo")]
    assert spec.is_composite


def test_a_bare_name_has_no_device() -> None:
    spec = BackendSpec.parse("gloo")
    assert spec.devices == ()
    assert not spec.is_composite


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty entry"),
        ("  ", "empty entry"),
        (",", "empty entry"),
        ("nccl,", "lacks a colon"),
        ("cpu:gloo,", "empty entry"),
        (",cpu:gloo", "empty entry"),
        ("cpu:gloo,,cuda:nccl", "empty entry"),
        (":", "empty entry"),
        (":nccl", "lacks a half"),
        ("cuda:", "lacks a half"),
        ("cpu:gloo,cuda: ", "lacks a half"),
        ("gloo,nccl", "lacks a colon"),
        ("cpu:gloo,nccl", "lacks a colon"),
        ("cuda:0:nccl", "more than one colon"),
        ("gpu:nccl", "neither PyTorch nor"),
        ("cuda0:nccl", "neither PyTorch nor"),
        ("0:nccl", "neither PyTorch nor"),
        ("cuda:nccl,cuda:gloo", "twice"),
        ("cuda:nccl,CUDA:nccl", "twice"),
        ("gloo nccl", "white space"),
        ("glo\x00o", "control characters"),
    ],
)
def test_malformed_strings_are_refused_with_what_is_wrong(text: str, word: str) -> None:
    with pytest.raises(BackendSpecError, match=word) as refusal:
        BackendSpec.parse(text)
    assert repr(text) in str(refusal.value)
    assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize("value", [None, 3, b"nccl", ["cpu:gloo"]])
def test_what_is_no_string_is_refused_by_type(value: object) -> None:
    with pytest.raises(BackendSpecTypeError, match="is a string"):
        BackendSpec.parse(value)  # type: ignore[arg-type]


def test_devices_of_the_registry_are_known_though_pytorch_has_no_such_type() -> None:
    assert BackendSpec.parse("musa:mccl").devices == ("musa",)
    assert BackendSpec.parse("npu:hccl").devices == ("npu",)


def test_the_known_devices_can_be_given() -> None:
    assert BackendSpec.parse("gpu:nccl", lambda name: name == "gpu").devices == ("gpu",)
    with pytest.raises(BackendSpecError, match="cpu"):
        BackendSpec.parse("cpu:gloo", lambda name: name == "gpu")


@pytest.mark.parametrize(
    ("text", "mapped"),
    [
        ("nccl", "mccl"),
        ("gloo", "gloo"),
        ("xnccl", "xnccl"),
        ("mccl", "mccl"),
        ("cpu:gloo,cuda:nccl", "cpu:gloo,musa:mccl"),
        ("cuda:nccl,cpu:gloo", "musa:mccl,cpu:gloo"),
        ("musa:nccl", "musa:mccl"),
        ("cuda:mccl", "cuda:mccl"),
        ("cpu:nccl", "cpu:nccl"),
        ("xpu:nccl,cuda:nccl", "xpu:nccl,musa:mccl"),
        ("cuda:gloo", "cuda:gloo"),
    ],
)
def test_only_logical_entries_are_mapped(text: str, mapped: str) -> None:
    spec = BackendSpec.parse(text).for_accelerator("musa", "mccl")
    assert str(spec) == mapped
    assert spec.for_accelerator("musa", "mccl") == spec


@pytest.mark.parametrize("text", ["cuda:nccl,musa:gloo", "musa:gloo,cuda:nccl", "cuda:nccl,musa:mccl", "cuda:nccl,musa:nccl"])
def test_an_entry_that_conflicts_with_the_mapped_one_is_refused(text: str) -> None:
    with pytest.raises(BackendSpecError, match="musa") as refusal:
        BackendSpec.parse(text).for_accelerator("musa", "mccl")
    assert repr(text) in str(refusal.value)


def test_on_a_host_that_is_its_own_accelerator_the_mapped_entry_is_not_repeated() -> None:
    assert str(BackendSpec.parse("cpu:gloo,cuda:nccl").for_accelerator("cpu", "gloo")) == "cpu:gloo"
    assert str(BackendSpec.parse("cuda:nccl").for_accelerator("cpu", "gloo")) == "cpu:gloo"
    with pytest.raises(BackendSpecError, match="twice"):
        BackendSpec.parse("cpu:mpi,cuda:nccl").for_accelerator("cpu", "gloo")
