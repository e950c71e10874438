"""Device ids: the forms that mean one id, those that are refused, and how values are quoted."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.accelerator.device_ids import LocalDeviceId, PhysicalDeviceId, normalize_device_id, quote
from harness.errors import DeviceIdTypeError, VisibleDevicesError


def short(value):
    return type(value).__name__


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Raising:
    def __index__(self):
        raise OverflowError("no index today")

    def __repr__(self):
        raise RuntimeError("no repr either")


@given(st.integers(0, 2**31 - 1))
def test_every_form_of_a_number_is_the_same_id(number):
    forms = [number, str(number), f" {number} ", f"\t{number}\n", float(number), np.int64(number), np.uint32(number), Index(number)]
    forms += [torch.tensor(number), LocalDeviceId(number), PhysicalDeviceId(number), f"00{number}"]
    assert {normalize_device_id(form) for form in forms} == {number}
    assert {PhysicalDeviceId(form) for form in forms if not isinstance(form, LocalDeviceId)} == {PhysicalDeviceId(number)}


@pytest.mark.parametrize(
    "value", [1.5, -1, "-1", -1.0, float("nan"), float("inf"), -float("inf"), "", "  ", np.int64(-3), "9" * 5000], ids=short
)
def test_values_that_name_no_device_are_refused_and_quoted(value):
    with pytest.raises(VisibleDevicesError) as refusal:
        normalize_device_id(value)
    assert quote(value) in str(refusal.value)
    assert not isinstance(refusal.value, TypeError)


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        np.bool_(True),
        torch.tensor(True),
        None,
        [1],
        (1,),
        {1: 2},
        {1},
        b"1",
        1j,
        object(),
        np.array([1, 2]),
        Raising(),
        slice(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_are_refused_as_a_type_error_and_quoted(value):
    with pytest.raises(DeviceIdTypeError) as refusal:
        normalize_device_id(value)
    assert isinstance(refusal.value, (TypeError, ValueError))
    assert quote(value) in str(refusal.value)


def test_text_that_is_no_number_is_kept_stripped():
    assert normalize_device_id(" GPU-12 ") == "GPU-12"
    assert normalize_device_id("1e400") == "1e400"
    assert normalize_device_id("٣") == "٣"
    assert normalize_device_id("3.0") == "3.0"


def test_a_local_id_is_no_physical_id():
    with pytest.raises(DeviceIdTypeError, match="local id"):
        PhysicalDeviceId(LocalDeviceId(1))
    assert type(LocalDeviceId(3)) is not int
    assert repr(LocalDeviceId(3)) == "LocalDeviceId(3)"
    assert f"{LocalDeviceId(3)}" == str(LocalDeviceId(3)) == "3"
    assert LocalDeviceId(3) == 3
    assert PhysicalDeviceId(PhysicalDeviceId("7").value) == PhysicalDeviceId(7)
    assert str(PhysicalDeviceId("GPU-1")) == "GPU-1"
    assert PhysicalDeviceId(PhysicalDeviceId(4)) == PhysicalDeviceId(4)


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, [1] * 10**6, 10**400, 10**5000, -(10**5000), [10**5000], Raising(), "\0\n", {"k": "v" * 10**6}],
    ids=short,
)
def test_quotes_are_short_and_never_raise(value):
    assert 0 < len(quote(value)) < 600


def test_short_values_are_quoted_as_they_are():
    assert quote("GPU-1") == "'GPU-1'"
    assert quote(-3) == "-3"
    assert quote(10**400).startswith("1" + "0" * 30)
    assert "characters" in quote("x" * 500)
