"""Hosts, lists and environments for the checks of VIS.

For: drawing texts on which every vendor's documents speak, odd ones included. Not for: what they mean (`models/visible_devices.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import hypothesis.strategies as st

from conformance.models.visible_devices import VARIABLES, ModelHost

UUIDS = tuple(
    f"GPU-{start}-{number}aa1-4ff1-8aa9-c388d80f85{number}f"
    for number, start in enumerate(("e429a63e", "e429b1dc", "9e8d35e3", "472ea263", "1c20e77d", "e56257c4", "00000001", "472f0000"))
)
"""Eight cards, some of whose UUIDs start alike."""

UNKNOWN_HOST = ModelHost()
FULL_HOST = ModelHost(UUIDS)


@cache  # Hypothesis prepares a strategy once an object, which costs more than drawing from it
def hosts(*, known: bool | None = None) -> st.SearchStrategy[ModelHost]:
    """A host of 1 to 8 cards, or one of which nothing is known."""
    full = st.integers(1, len(UUIDS)).map(lambda count: ModelHost(UUIDS[:count]))
    return full if known else st.just(UNKNOWN_HOST) if known is False else full | st.just(UNKNOWN_HOST)


@cache
def numbers(most: int, *, least: int = 0) -> st.SearchStrategy[list[int]]:
    """Distinct device numbers below `most`, in any order."""
    return st.lists(st.integers(0, most - 1), unique=True, min_size=least, max_size=most)


@cache
def environments(vendor: str, most: int) -> st.SearchStrategy[dict[str, str]]:
    """Values for the vendor's variables, each of which may be unset."""
    return _ENVIRONMENTS[vendor](most)


@cache
def cuda_lists(most: int) -> st.SearchStrategy[str]:
    """Values of CUDA's grammar: numbers, also written oddly, UUIDs in full and short, and what ends a list."""
    odd = st.sampled_from(("{}", "{}", "{}", " {}", "{} ", "+{}", "{}gpu2", "{}.5", "0{}"))
    written = st.builds(str.format, odd, st.integers(0, most - 1))
    endings = st.sampled_from(("-1", "", "x", "NoDevFiles", "-", UUIDS[0], "-2gpu"))
    return st.builds(lambda *parts: ",".join(parts[0] + parts[1] + parts[2]), *_parts(written, endings)) | uuid_lists()


@cache
def uuid_lists() -> st.SearchStrategy[str]:
    """Values of CUDA's grammar whose first entry is a UUID, or the start of one."""
    short = st.builds(lambda uuid, length: uuid[:length], st.sampled_from(UUIDS), st.integers(6, 14))
    written = st.sampled_from(UUIDS) | short
    endings = st.sampled_from(("0", "", "x", "GPU-ffff", "MIG-1", " " + UUIDS[3]))
    return st.builds(lambda first, *parts: ",".join([first, *parts[0], *parts[1], *parts[2]]), written, *_parts(written, endings))


def _parts(written: st.SearchStrategy[str], endings: st.SearchStrategy[str]) -> tuple[st.SearchStrategy[list[str]], ...]:
    """Entries, perhaps something that ends the list, and entries after it; mostly without repetition."""
    good = st.lists(written, max_size=4, unique=True)
    return good, st.lists(endings, max_size=1), st.lists(written, max_size=2)


def _joined(entries: st.SearchStrategy[list[str]]) -> st.SearchStrategy[str]:
    return entries.map(",".join)


def _plain(most: int, *endings: str) -> st.SearchStrategy[str]:
    written = st.integers(0, most - 1).map(str)
    if not endings:
        return _joined(st.lists(written, min_size=1, max_size=most))
    return st.builds(lambda *parts: ",".join(parts[0] + parts[1] + parts[2]), *_parts(written, st.sampled_from(endings)))


def _one(variable: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={variable: values})


def _npu(most: int) -> st.SearchStrategy[dict[str, str]]:
    ascending = numbers(most, least=1).map(sorted).map(lambda some: ",".join(map(str, some)))
    return _one(VARIABLES["npu"][0], ascending | ascending.map(lambda text: text + ",") | _plain(most))


def _rocm(most: int) -> st.SearchStrategy[dict[str, str]]:
    rocr, hip, cuda = VARIABLES["rocm"]
    upper = _plain(most, "-1", "x") | st.just("")
    return st.fixed_dictionaries({}, optional={rocr: _plain(most, "-1", "x", "GPU-ffff"), hip: upper, cuda: _plain(most)})


def _xpu(most: int) -> st.SearchStrategy[dict[str, str]]:
    mask, selector = VARIABLES["xpu"]
    terms = st.sampled_from(("level_zero:gpu", "*:gpu", "level_zero:*", "opencl:cpu", "opencl:cpu;level_zero:0"))
    return st.fixed_dictionaries(
        {}, optional={mask: _plain(most) | st.just(""), selector: terms | _plain(most).map(lambda text: "level_zero:" + text)}
    )


def _mlu(most: int) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(VARIABLES["mlu"], _plain(most, "+1", "1gpu", "x", "") | st.just("")))


_ENVIRONMENTS: dict[str, Callable[[int], st.SearchStrategy[dict[str, str]]]] = {
    "cuda": lambda most: _one(VARIABLES["cuda"][0], cuda_lists(most)),
    "musa": lambda most: _one(VARIABLES["musa"][0], cuda_lists(most)),
    "rocm": _rocm,
    "npu": _npu,
    "xpu": _xpu,
    "mlu": _mlu,
}

HIDING: dict[str, tuple[dict[str, str], ...]] = {
    "cuda": tuple({"CUDA_VISIBLE_DEVICES": value} for value in ("", "-1", "x", "0,0", "NoDevFiles")),
    "musa": tuple({"MUSA_VISIBLE_DEVICES": value} for value in ("", "-1", "x", "0,0", "NoDevFiles")),
    "rocm": (
        {"ROCR_VISIBLE_DEVICES": ""},
        {"HIP_VISIBLE_DEVICES": "-1"},
        {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"},
        {"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "x"},
    ),
    "npu": tuple({"ASCEND_RT_VISIBLE_DEVICES": value} for value in ("1,0", "-1", "x", "2,2")),
    "xpu": ({"ONEAPI_DEVICE_SELECTOR": "opencl:cpu"}, {"ZE_AFFINITY_MASK": "1", "ONEAPI_DEVICE_SELECTOR": "level_zero:1"}),
    "mlu": ({"CN_VISIBLE_DEVICES": ""}, {"MLU_VISIBLE_DEVICES": "x"}, {"CUDA_VISIBLE_DEVICES": "1,1"}),
}
"""Environments under which a vendor's driver shows no device."""
