"""Every vendor's grammar: layers, order, duplicates, sub-devices, selectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.accelerator.visible_devices import (
    GRAMMARS,
    PhysicalDevice,
    PhysicalDeviceId,
    format_visible_devices,
    read_visible_devices,
)
from harness.errors import VisibleDevicesError

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
MASK, SELECTOR = "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"
NPU = "ASCEND_RT_VISIBLE_DEVICES"


def shown(vendor, environment, **host):
    entries = read_visible_devices(GRAMMARS[vendor], environment, **host).entries
    return None if entries is None else [entry.value for entry in entries]


@pytest.mark.parametrize("vendor", GRAMMARS)
def test_grammars_are_whole(vendor):
    grammar = GRAMMARS[vendor]
    assert grammar.vendor == vendor
    assert grammar.primary_variable in grammar.variables
    assert len(set(grammar.variables)) == len(grammar.variables)
    assert len(grammar.source) > 100
    assert all(grammar.syntax(name).name == name for name in grammar.variables)
    with pytest.raises(KeyError, match="reads"):
        grammar.syntax("NO_SUCH_VARIABLE")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({ROCR: "6,7", HIP: "1,0"}, [7, 6]),  # B17
        ({ROCR: "0", HIP: "0,1"}, [0]),
        ({ROCR: "1", HIP: "1"}, []),  # B18
        ({ROCR: "0", HIP: "0"}, [0]),  # B19
        ({ROCR: "6,7", CUDA: "1"}, [7]),
        ({ROCR: "6,7", HIP: "0", CUDA: "1"}, [6]),
        ({HIP: "", CUDA: "2"}, [2]),
        ({HIP: "", CUDA: ""}, None),
        ({HIP: ""}, None),
        ({ROCR: ""}, []),
        ({ROCR: "", HIP: "0"}, []),
        ({ROCR: "1,1,2"}, [1]),
        ({ROCR: "0x1, 010,2"}, [1, 8, 2]),
        ({ROCR: "1gpu,2"}, []),
        ({ROCR: "-1"}, []),
        ({ROCR: "9" * 5000}, []),
        ({HIP: "0,0,1"}, [0, 1]),
        ({HIP: "0, 1"}, [0]),
        ({HIP: "01"}, []),
        ({HIP: "-1"}, []),
        ({ROCR: "gpu-ab,1"}, ["gpu-ab", 1]),
        ({HIP: "1,GPU-ab"}, [1, "GPU-ab"]),
        ({ROCR: "GPU-aa,GPU-bb", HIP: "1"}, ["GPU-bb"]),
        ({ROCR: "GPU-aa,GPU-bb", HIP: "GPU-b"}, ["GPU-bb"]),
        ({ROCR: "GPU-aa,GPU-bb", HIP: "GPU-c"}, []),
        ({ROCR: "6,7", HIP: "GPU-c"}, ["GPU-c"]),
    ],
)
def test_rocm(environment, expected):
    assert shown("rocm", environment) == expected


def test_rocm_names_both_variables_where_they_hide_everything():
    visible = read_visible_devices(GRAMMARS["rocm"], {ROCR: "1", HIP: "1"})
    for text in (visible.diagnosis, *refusals(visible)):
        assert ROCR in text
        assert HIP in text
    assert f"{ROCR} hides" in read_visible_devices(GRAMMARS["rocm"], {ROCR: "", HIP: "0"}).diagnosis


def refusals(visible):
    for device_id in (0, 1, "GPU-1"):
        with pytest.raises(VisibleDevicesError) as caught:
            visible.resolve(device_id)
        yield str(caught.value)


def test_rocm_uuids_ignore_case_with_a_table():
    table = (PhysicalDevice(0, "GPU-00aa"), PhysicalDevice(1, "GPU-00bb"))
    assert shown("rocm", {ROCR: "gpu-00BB,0"}, physical_devices=table) == ["GPU-00bb", 0]
    visible = read_visible_devices(GRAMMARS["rocm"], {ROCR: "gpu-00BB,0"}, physical_devices=table)
    assert [visible.resolve(one) for one in ("GPU-00BB", 1, 0)] == [0, 0, 1]
    assert shown("rocm", {ROCR: "0,GPU-00a"}, physical_devices=table) == [0]


@given(st.permutations(range(8)), st.integers(1, 8), st.data())
def test_layers_are_function_composition(order, size, data):
    lower = order[:size]
    upper = data.draw(st.lists(st.integers(0, size - 1), unique=True, min_size=1))
    environment = {ROCR: ",".join(map(str, lower)), HIP: ",".join(map(str, upper))}
    assert shown("rocm", environment) == [lower[one] for one in upper]
    visible = read_visible_devices(GRAMMARS["rocm"], environment)
    assert [visible.resolve(PhysicalDeviceId(lower[one])) for one in upper] == list(range(len(upper)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0,1,2,5", [0, 1, 2, 5]),
        ("1,0", []),
        ("0,0", []),
        ("1, 2,3", [1]),
        ("1 ,2", [1]),
        ("-1", []),
        ("", []),
        ("1,x", [1]),
        ("1,2,", [1, 2]),
    ],
)
def test_npu(value, expected):
    assert shown("npu", {NPU: value}) == expected


def test_npu_with_a_count_and_the_containers_variable():
    assert shown("npu", {NPU: "1,3,8"}, device_count=8) == [1, 3]
    assert (
        "ASCEND_VISIBLE_DEVICES is set too" in read_visible_devices(GRAMMARS["npu"], {"ASCEND_VISIBLE_DEVICES": "4,3"}).diagnosis
    )  # B27


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CN_VISIBLE_DEVICES": "1gpu2,2ampere"}, []),  # B09
        ({"CN_VISIBLE_DEVICES": "2, +3, -0, 5"}, [2]),
        ({"CN_VISIBLE_DEVICES": "0, 1, 2, 1"}, []),
        ({"MLU_VISIBLE_DEVICES": "3,1"}, [3, 1]),
        ({"CN_VISIBLE_DEVICES": "2", "MLU_VISIBLE_DEVICES": "3", CUDA: "4"}, [2]),
        ({"CN_VISIBLE_DEVICES": "", "MLU_VISIBLE_DEVICES": "3"}, []),
        ({CUDA: "4"}, [4]),
        ({"MLU_VISIBLE_DEVICES": "12345678-1234-1234-1234-123456789abc,x"}, ["12345678-1234-1234-1234-123456789abc"]),
    ],
)
def test_mlu(environment, expected):
    assert shown("mlu", environment) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({MASK: "3,1,1"}, [1, 3]),
        ({MASK: ""}, None),
        ({MASK: "x,2"}, [2]),
        ({MASK: "0.1"}, ["0.1"]),
        ({MASK: "1.1,0.0,0.1"}, [0, "1.1"]),
        ({MASK: "0.1,0"}, [0]),
        ({MASK: "0.0,1.1", SELECTOR: "level_zero:1"}, ["1.1"]),
        ({MASK: "0.1", SELECTOR: "level_zero:0.2"}, ["0.1.2"]),
        ({SELECTOR: "level_zero:1,0"}, [0, 1]),
        ({SELECTOR: "Level_Zero:1;opencl:cpu"}, [1]),
        ({SELECTOR: "level_zero:0.1,0.0"}, ["0.0", "0.1"]),
        ({SELECTOR: "level_zero:gpu"}, None),
        ({SELECTOR: "*:*"}, None),
        ({SELECTOR: "*:gpu,0"}, None),
        ({SELECTOR: "opencl:cpu"}, []),
        ({SELECTOR: "level_zero:cpu"}, []),
        ({SELECTOR: "0,1"}, []),  # B23
        ({SELECTOR: "level_zero:"}, []),
        ({SELECTOR: "level_zero:gpu:0"}, []),
        ({SELECTOR: "!opencl:*"}, []),
        ({SELECTOR: "level_zero:*.*"}, []),
        ({SELECTOR: ""}, None),
        ({MASK: "2,3", SELECTOR: "level_zero:1"}, [3]),
        ({MASK: "2,3", SELECTOR: "level_zero:*"}, [2, 3]),
        ({MASK: "2", SELECTOR: "level_zero:1"}, []),
    ],
)
def test_xpu(environment, expected):
    assert shown("xpu", environment) == expected


def test_xpu_selector_without_a_backend_says_how_to_write_it():
    assert "level_zero:0,1" in read_visible_devices(GRAMMARS["xpu"], {SELECTOR: "0,1"}).diagnosis
    with pytest.raises(VisibleDevicesError, match="0,1"):
        read_visible_devices(GRAMMARS["xpu"], {SELECTOR: "0,1"}).check_device_count(0)


def test_xpu_counts_what_the_mask_asks_for_under_a_wildcard():
    visible = read_visible_devices(GRAMMARS["xpu"], {MASK: "0,7", SELECTOR: "level_zero:gpu"}, device_count=8)
    visible.check_device_count(2)
    with pytest.raises(VisibleDevicesError, match="'7'"):
        visible.check_device_count(1)


def test_xpu_resolves_sub_devices_in_full_only():
    visible = read_visible_devices(GRAMMARS["xpu"], {MASK: "0.1,1.10"})
    assert [visible.resolve("0.1"), visible.resolve("1.10")] == [0, 1]
    with pytest.raises(VisibleDevicesError):
        visible.resolve("1.1")
    with pytest.raises(VisibleDevicesError, match="whole number"):
        visible.resolve(0.1)


@pytest.mark.parametrize(
    ("vendor", "ids", "variable", "text"),
    [
        ("xpu", [0, 1], SELECTOR, "level_zero:0,1"),
        ("xpu", ["0.0", "0.1"], SELECTOR, "level_zero:0.0,0.1"),
        ("xpu", ["0.1", 2], None, "0.1,2"),
        ("npu", [1, 3], None, "1,3"),
        ("npu", [], None, ""),
        ("rocm", [], None, "-1"),
        ("rocm", [], ROCR, ""),
        ("rocm", ["GPU-1", 0], ROCR, "GPU-1,0"),
        ("mlu", [3, 1], "CN_VISIBLE_DEVICES", "3,1"),
    ],
)
def test_formats(vendor, ids, variable, text):
    grammar = GRAMMARS[vendor]
    assert format_visible_devices(grammar, ids, variable) == text
    assert shown(vendor, {variable or grammar.primary_variable: text}) == ids


@pytest.mark.parametrize(
    ("vendor", "ids"),
    [("npu", [1, 0]), ("npu", ["GPU-1"]), ("xpu", [1, 0]), ("xpu", []), ("xpu", ["0.0", "0.1"]), ("mlu", ["GPU-1"])],
)
def test_what_a_vendor_cannot_write_is_refused(vendor, ids):
    with pytest.raises(VisibleDevicesError):
        format_visible_devices(GRAMMARS[vendor], ids)


@given(st.sampled_from(sorted(GRAMMARS)), st.data())
def test_any_text_is_read_without_an_error(vendor, data):
    grammar = GRAMMARS[vendor]
    text = st.text(max_size=20) | st.lists(
        st.sampled_from(["0", "1", "2", ",", ".", ";", ":", "*", "-", "GPU-", "level_zero:", " "]), max_size=9
    ).map("".join)
    environment = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(grammar.variables, text)))
    count = data.draw(st.none() | st.integers(0, 3))
    visible = read_visible_devices(grammar, environment, device_count=count)
    for device_id in data.draw(st.lists(st.integers(0, 4) | st.text(max_size=4), max_size=3)):
        try:
            local = visible.resolve(device_id)
        except VisibleDevicesError as error:
            assert (
                grammar.variables[0] in str(error)
                or "not a device id" in str(error)
                or any(name in str(error) for name in grammar.variables)
            )
        else:
            assert visible.count is None or 0 <= local < visible.count
    assert visible.diagnosis


def test_a_selector_of_everything_is_diagnosed_as_such():
    visible = read_visible_devices(GRAMMARS["xpu"], {SELECTOR: "level_zero:gpu"}, device_count=2)
    assert "shows every device. The host has 2 devices." in visible.diagnosis
    assert visible.resolve(1) == 1
