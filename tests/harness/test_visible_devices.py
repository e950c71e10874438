"""Reading, resolving and formatting: the clauses on CUDA's grammar, and the cases from the field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.accelerator.visible_devices import (
    GRAMMARS,
    NO_VARIABLE,
    LocalDeviceId,
    PhysicalDevice,
    PhysicalDeviceId,
    format_visible_devices,
    read_visible_devices,
)
from harness.errors import DeviceIdTypeError, VisibleDevicesError

MUSA = GRAMMARS["musa"]
UUIDS = (
    "GPU-9942190a-aa31-4ff1-4aa9-c388d80f85f1",
    "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293",
    "GPU-e429a63e-c61c-4795-b757-5132caeb8e70",
    "GPU-eee1dfbc-0a0f-6ad8-5ff6-dc942a8b9d98",
    "GPU-bbcd6503-5150-4e92-c266-97cc4390d04e",
    "GPU-472ea263-58d7-410d-cc82-f7fdece5bd28",
    "GPU-e56257c4-947f-6a5b-7ec9-0f45567ccf4e",
    "GPU-1c20e77d-1c1a-d9ed-fe37-18b8466a78ad",
)
TABLE = tuple(PhysicalDevice(index, uuid) for index, uuid in enumerate(UUIDS))


def musa(value=None, **host):
    return read_visible_devices(MUSA, {} if value is None else {"MUSA_VISIBLE_DEVICES": value}, **host)


def ids(visible):
    return None if visible.entries is None else [entry.value for entry in visible.entries]


def refusal(visible, device_id):
    with pytest.raises(VisibleDevicesError) as caught:
        visible.resolve(device_id)
    return str(caught.value)


# VIS-1, VIS-7, VIS-8: unset, empty, none


def test_unset_shows_every_device():
    visible = musa()
    assert (visible.count, visible.entries) == (None, None)
    assert visible.resolve(5) == 5
    assert isinstance(visible.resolve(5), LocalDeviceId)
    assert "MUSA_VISIBLE_DEVICES is not set" in visible.diagnosis
    assert "MUSA_VISIBLE_DEVICES" in refusal(visible, 2**31)
    assert "GPU-12" in refusal(visible, "GPU-12")
    refusal(visible, 10**400)


@pytest.mark.parametrize("host", [{"device_count": 2}, {"physical_devices": TABLE[:2]}])
def test_unset_checks_the_count_where_it_is_known(host):
    visible = musa(**host)
    assert visible.count == 2
    assert visible.resolve("1") == 1
    assert "0 to 1" in refusal(visible, 2)
    assert "0 to 1" in refusal(visible, LocalDeviceId(2))
    assert "not a physical id" in refusal(visible, PhysicalDeviceId(2))


def test_unset_resolves_uuids_where_the_table_is_known():
    visible = musa(physical_devices=TABLE)
    assert visible.resolve(UUIDS[3]) == 3
    assert visible.resolve("GPU-bb") == 4
    assert visible.resolve(UUIDS[4] + "-longer") == 4
    assert "ambiguous" in refusal(visible, "GPU-e")
    assert "UUIDs" in refusal(visible, "GPU-0")


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles", "none", " ", "x", ",0", "GPU-", "0,0"])
def test_a_value_that_hides_every_device_is_named_by_every_refusal(value):
    visible = musa(value, physical_devices=TABLE)
    assert (visible.count, ids(visible)) == (0, [])
    for device_id in (0, "0", UUIDS[0], LocalDeviceId(0), PhysicalDeviceId(0)):
        text = refusal(visible, device_id)
        assert "MUSA_VISIBLE_DEVICES" in text
        assert "no device" in text


def test_a_host_without_devices():
    visible = musa(device_count=0)
    assert "no device is visible" in refusal(visible, 0)
    assert "no device is visible" in refusal(musa(device_count=0), LocalDeviceId(0))
    assert musa("0", device_count=0).count == 0
    assert "no device to choose from" in musa("0", device_count=0).diagnosis


# VIS-2 to VIS-5, VIS-9, VIS-14


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1,0", [1, 0]),  # B05
        ("0,2,-1,1", [0, 2]),
        ("2,x,1", [2]),
        ("1gpu2,2ampere", [1, 2]),  # B09
        ("2, +3, -0, 5", [2, 3, 0, 5]),
        ("0, 1, 2, 1", []),
        ("0,0", []),  # B34
        ("0,-1,0", [0]),
        ("0,,1", [0]),
        ("1,GPU-e4", [1]),
        (f"{UUIDS[2]},1", [UUIDS[2]]),
        ("MIG-feee0c61", ["MIG-feee0c61"]),
        ("MIG-a,MIG-b", ["MIG-a"]),  # B06
        ("9" * 5000, []),
        ("+", []),
        ("٣", [3]),
        ("²", []),
        ("0\0,1", [0, 1]),
        ("4294967296", [4294967296]),
    ],
)
def test_lists_without_a_table(value, expected):
    assert ids(musa(value)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("GPU-e4,GPU-9e8d35e3", [2, 1]),  # B03
        ("GPU-9e8d35e3,GPU-123,GPU-47", [1]),
        ("GPU-9e8d35e3,GPU-e,GPU-47", [1]),
        ("GPU-9e8d35e3,GPU-47,GPU-9e8", []),
        (UUIDS[1], [1]),  # B01
        ("GPU-9e8,GPU-xx,GPU-47,GPU-47", [1]),
        ("7,8,0", [7]),
        ("8", []),
    ],
)
def test_lists_with_a_table(value, expected):
    visible = musa(value, physical_devices=TABLE)
    assert ids(visible) == [UUIDS[one] if value.startswith("GPU") else one for one in expected]
    assert [visible.resolve(UUIDS[one]) for one in expected] == list(range(len(expected)))
    assert [visible.resolve(one) for one in expected] == list(range(len(expected)))


def test_mig_devices_of_the_table():
    table = (PhysicalDevice(0, UUIDS[0], ("MIG-aa", "MIG-ab")), PhysicalDevice(1, UUIDS[1], ("MIG-b",)))
    visible = musa("MIG-b", physical_devices=table)
    assert ids(visible) == ["MIG-b"]
    assert visible.resolve("MIG-b") == 0
    assert "MIG-b" in refusal(visible, PhysicalDeviceId(1))
    assert ids(musa("MIG-a", physical_devices=table)) == []
    assert "ambiguous" in musa("MIG-a", physical_devices=table).diagnosis
    assert ids(musa("MIG-q", physical_devices=TABLE)) == ["MIG-q"]
    with pytest.raises(VisibleDevicesError, match="MIG-aa"):
        musa("MIG-b,MIG-aa", physical_devices=table).check_device_count(1)


@given(st.permutations(range(12)).flatmap(lambda order: st.integers(1, 12).map(lambda size: order[:size])))
def test_physical_ids_win_and_the_rest_are_local(order):
    visible = musa(",".join(map(str, order)))
    for number in range(14):
        if number in order:
            assert visible.resolve(number) == order.index(number)
        elif number < len(order):
            assert visible.resolve(number) == number
            refusal(visible, PhysicalDeviceId(number))
        else:
            refusal(visible, number)


def test_a_local_id_is_never_mapped_again():
    visible = musa("1,0")
    once = visible.resolve(1)
    assert once == 0
    assert visible.resolve(once) == once  # B15: a plain 0 would become 1
    assert visible.resolve(0) == 1
    assert "local id" in refusal(visible, LocalDeviceId(2))
    assert "local id" in refusal(visible, LocalDeviceId(-1))


def test_an_entry_shorter_or_longer_than_the_id():
    visible = musa("GPU-af7b61d8,GPU-12345678-9abc")
    assert visible.resolve("GPU-af7b61d8-21af-baea") == 0  # B02
    assert visible.resolve("GPU-1234") == 1
    assert "ambiguous" in refusal(visible, "GPU-")
    assert musa("GPU-a,GPU-ab").resolve("GPU-a") == 0
    assert "ambiguous" in refusal(musa("GPU-a,GPU-ab"), "GPU-abc")


@pytest.mark.parametrize("bad", [True, None, [0], 1.5, float("nan"), -1, b"0"])
def test_bad_ids_are_refused_under_every_view(bad):
    for visible in (musa(), musa("0,1"), musa(""), musa("0", physical_devices=TABLE), read_visible_devices(NO_VARIABLE, {})):
        with pytest.raises((VisibleDevicesError, DeviceIdTypeError), match="not a device id"):
            visible.resolve(bad)


@pytest.mark.parametrize(
    "device_id", [8, "8", "3.0", "x", "1e400", "٣", 10**400, 10**5000, "x" * 10**6], ids=lambda value: type(value).__name__
)
def test_a_refusal_names_variable_value_and_what_would_do(device_id):
    text = refusal(musa("4,5"), device_id)
    assert "MUSA_VISIBLE_DEVICES='4,5'" in text
    assert "physical ids 4, 5" in text
    assert "local ids from 0 to 1" in text
    assert len(text) < 2000


def test_sparse_and_shifted_lists():
    assert musa("0,1,2,5").resolve(5) == 3  # B26
    assert musa("4,5,6,7").resolve(6) == 2  # B14
    assert musa("4,5,6,7").resolve(1) == 1


def test_musa_uuids_with_and_without_their_prefix():
    bare = ("2b7d56ad-43c9-89d9-703c-03c503e7fad4", "a7257b94-d3d7-61b5-4f15-bbf8c2f23218")
    table = tuple(PhysicalDevice(index, uuid) for index, uuid in enumerate(bare))
    for value in (f"{bare[1]},{bare[0]}", f"GPU-{bare[1]},GPU-2b7d", "1,0"):
        visible = musa(value, physical_devices=table)
        for device_id in (bare[1], f"GPU-{bare[1]}", "GPU-a725"):
            assert visible.resolve(device_id) == 0
    assert ids(musa(f"{bare[1]},{bare[0]}")) == [bare[1], bare[0]]
    assert ids(musa(f"{bare[1]},2b7d", physical_devices=table)) == [bare[1]]
    assert ids(musa(f"{bare[1]},GPU-2b7d")) == [bare[1]]
    assert musa("GPU-2b7d").resolve(bare[0]) == 0
    assert musa(bare[0]).resolve("2b") == 0
    assert read_visible_devices(GRAMMARS["cuda"], {"CUDA_VISIBLE_DEVICES": bare[0]}).entries == (PhysicalDeviceId(2),)


# VIS-16


@pytest.mark.parametrize(
    ("value", "actual", "names"),
    [
        ("0,1,3,4", 3, ["'4'"]),  # B25
        ("0,1", 0, ["'0'", "'1'"]),
        ("0,x,2", 1, ["'x'", "'2'"]),
        ("0,0", 0, ["'0'"]),
        ("0,1", -1, ["'0'"]),
    ],
)
def test_dropped_entries_are_named(value, actual, names):
    with pytest.raises(VisibleDevicesError) as caught:
        musa(value).check_device_count(actual)
    assert "MUSA_VISIBLE_DEVICES" in str(caught.value)
    assert all(name in str(caught.value) for name in names)


@pytest.mark.parametrize(("value", "actual"), [("0,1", 2), ("0,-1", 1), ("-1", 0), ("", 0), ("NoDevFiles", 0), (None, 0), ("0", 3)])
def test_counts_that_fit(value, actual):
    musa(value).check_device_count(actual)


def test_a_host_that_shows_fewer_than_it_has():
    with pytest.raises(VisibleDevicesError, match="asks for 4 devices, but the driver shows 2"):
        musa(device_count=4).check_device_count(2)
    with pytest.raises(VisibleDevicesError, match="asks for 1 device, but"):
        musa(device_count=1).check_device_count(0)


# VIS-15


@given(st.lists(st.integers(0, 40), unique=True), st.sampled_from(["cuda", "musa", "rocm", "mlu"]))
def test_formatting_and_reading_back_is_the_identity(numbers, vendor):
    grammar = GRAMMARS[vendor]
    text = format_visible_devices(grammar, numbers)
    assert not set(text) & set("[]() '")
    assert ids(read_visible_devices(grammar, {grammar.primary_variable: text})) == numbers


def test_formatting_uuids_and_typed_ids():
    assert format_visible_devices(MUSA, [UUIDS[2], UUIDS[0]]) == f"{UUIDS[2]},{UUIDS[0]}"
    assert format_visible_devices(MUSA, [PhysicalDeviceId(3), " 1 "]) == "3,1"
    assert format_visible_devices(MUSA, []) == ""


@pytest.mark.parametrize("wrong", [[0, 0], [0, "GPU-1"], ["GPU-1", 0], ["MIG-1", "MIG-2"], ["x"], ["a,b"], ["GPU-1", "GPU-1"]])
def test_lists_that_the_driver_would_read_otherwise_are_refused(wrong):
    with pytest.raises(VisibleDevicesError, match="the driver would read"):
        format_visible_devices(MUSA, wrong)


def test_formatting_needs_a_variable_and_ids():
    with pytest.raises(ValueError, match="reads none"):
        format_visible_devices(NO_VARIABLE, [0])
    with pytest.raises(ValueError, match="MUSA_VISIBLE_DEVICES"):
        format_visible_devices(MUSA, [0], variable="CUDA_VISIBLE_DEVICES")
    with pytest.raises(DeviceIdTypeError):
        format_visible_devices(MUSA, [True])


# The rest


def test_the_environment_of_the_process_is_the_default(monkeypatch):
    monkeypatch.setenv("MUSA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")  # another vendor's
    assert ids(read_visible_devices(MUSA)) == [3]


def test_layers_tell_what_was_looked_at():
    (layer,) = musa("1,x").layers
    assert (layer.variable, layer.value, layer.decided, layer.shown, layer.asked) == ("MUSA_VISIBLE_DEVICES", "1,x", True, 1, 2)
    assert [entry.text for entry in layer.dropped] == ["x"]
    (layer,) = musa().layers
    assert (layer.value, layer.decided) == (None, False)


def test_no_variable():
    visible = read_visible_devices(NO_VARIABLE, {"CUDA_VISIBLE_DEVICES": "3"}, device_count=1)
    assert (visible.resolve(0), visible.count, visible.layers) == (0, 1, ())
    assert "no visible-devices variable" in refusal(visible, 1)
    assert NO_VARIABLE.variables == ()
    with pytest.raises(KeyError, match="none"):
        NO_VARIABLE.syntax("CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    "host",
    [
        {"device_count": -1},
        {"device_count": 3, "physical_devices": TABLE[:2]},
        {"physical_devices": (PhysicalDevice(1),)},
    ],
)
def test_a_host_that_contradicts_itself_is_refused(host):
    with pytest.raises(VisibleDevicesError):
        musa("0", **host)


def test_a_table_without_uuids_takes_any():
    table = (PhysicalDevice(0), PhysicalDevice(1, UUIDS[1]))
    assert ids(musa("GPU-zz", physical_devices=table)) == ["GPU-zz"]
    assert ids(musa("1,0", physical_devices=table)) == [1, 0]


@pytest.mark.parametrize(
    "value",
    [
        "0," * 50_000,
        "," * 10**5,
        "9" * 10**6,
        "GPU-a," * 20_000,
        ",".join(map(str, range(15_000))),
        "MIG-" + ",MIG-".join(map(str, range(9**4))),
    ],
    ids=lambda value: value[:6],
)
def test_huge_values_are_read_and_quoted_briefly(value):
    for vendor in GRAMMARS.values():
        for variable in vendor.variables:
            visible = read_visible_devices(vendor, {variable: value})
            assert len(visible.diagnosis) < 5000
            assert len(refusal(visible, 2**31 + 5)) < 8000
