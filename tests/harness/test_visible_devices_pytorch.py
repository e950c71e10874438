"""CUDA's grammar against PyTorch's own reading of the variable (VIS-11)."""

import pytest
import torch.cuda
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.accelerator.device_ids import PhysicalDeviceId
from harness.accelerator.visible_devices import GRAMMARS, PhysicalDevice, read_visible_devices

PIECES = [
    "0",
    "1",
    "2",
    "10",
    "007",
    ",",
    ",,",
    " ",
    "+",
    "-",
    "-0",
    "-1",
    "x",
    "gpu",
    "GPU-",
    "GPU-a",
    "GPU-ab",
    "MIG-",
    "MIG-q",
    "NoDevFiles",
]
PIECES += ["\t", "\x1c", "٣", "1_0", "0x1", "1.5", "1e3", "[", "]", "'", "9" * 30]


def pytorch_list(value):
    """PyTorch's list, or None where it raises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.version, "hip", None)
        patch.setenv("CUDA_VISIBLE_DEVICES", value)
        try:
            return torch.cuda._parse_visible_devices()
        except ValueError:
            return None


def own_list(value, **host):
    return list(read_visible_devices(GRAMMARS["cuda"], {"CUDA_VISIBLE_DEVICES": value}, **host).entries)


@settings(max_examples=400)
@given(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
    | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
)
@example("²")
@example("1²")
@example("+" + "9" * 4300)
@example("9" * 4301)
@example("MIG-a,MIG-a,MIG-b")
def test_every_string_that_pytorch_reads_as_a_list_is_read_alike(value):
    expected = pytorch_list(value)
    if expected is None:
        return
    if value.startswith("MIG-"):
        expected = expected[:1]  # the driver shows one; PyTorch leaves counting MIG devices to it
    # Python strips the ids that callers pass; PyTorch keeps the white space of a UUID entry.
    assert own_list(value) == [PhysicalDeviceId(one) for one in expected]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["GPU-a", "GPU-ab", "GPU-b", "GPU-b1", "GPU-c", "GPU-zz", "x", ""]), max_size=6))
def test_a_table_agrees_with_pytorchs_ordinals(entries):
    uuids = ["GPU-abc", "GPU-aaa", "GPU-b123", "GPU-c"]
    table = tuple(PhysicalDevice(index, uuid) for index, uuid in enumerate(uuids))
    value = ",".join(["GPU-c", *entries])
    parsed = pytorch_list(value)
    expected = torch.cuda._transform_uuid_to_ordinals(parsed, uuids)
    own = own_list(value, physical_devices=table)
    repeated = not parsed and len(set(entries)) < len(entries) + 1
    if own and repeated and not expected:
        return  # a duplicate after the end of the list: the grammar's source says so
    assert own == [PhysicalDeviceId(uuids[one]) for one in expected]


@given(st.lists(st.integers(-1, 9), max_size=6), st.integers(0, 8))
def test_a_count_agrees_with_pytorchs_trimming(numbers, count):
    value = ",".join(map(str, numbers))
    parsed = pytorch_list(value)
    expected = parsed[: next((place for place, number in enumerate(parsed) if number >= count), len(parsed))]
    own = own_list(value, device_count=count)
    if own and not parsed:
        return  # a duplicate after the end of the list
    assert own == [PhysicalDeviceId(one) for one in expected]
