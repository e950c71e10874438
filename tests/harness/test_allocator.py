"""Expandable segments: the variable, the merge with the settings in force, and the read-back (MEM-9)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.accelerator import allocator
from harness.accelerator.allocator import EXPANDABLE_SEGMENTS_VARIABLE, set_expandable_segments, with_expandable_segments
from harness.accelerator.generic import GenericAccelerator

PARTS = (
    "max_split_size_mb:64",
    "roundup_power2_divisions:[256:1,512:2,>:4]",
    "expandable_segments:False",
    "pinned_num_register_threads:8",
)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (EXPANDABLE_SEGMENTS_VARIABLE, "PYTORCH_ALLOC_CONF", "PYTORCH_MUSA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)


class Memory(SimpleNamespace):
    """A memory namespace that keeps the last settings and shows them in its snapshot."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(calls=[], settings=settings)

    def _set_allocator_settings(self, text: str) -> None:
        self.calls.append(text)
        self.settings["expandable_segments"] = "expandable_segments:True" in text

    def _snapshot(self) -> dict[str, Any]:
        return {"segments": [], "allocator_settings": dict(self.settings)}


@given(st.lists(st.sampled_from(PARTS), unique=True), st.sampled_from([",", " , ", ",,"]))
def test_every_other_setting_stays(parts: list[str], comma: str) -> None:
    merged = with_expandable_segments(comma.join(parts))
    kept = [part for part in parts if not part.startswith("expandable_segments")]
    assert merged == ",".join([*kept, "expandable_segments:True"])
    assert with_expandable_segments(merged) == merged


@pytest.mark.parametrize("value", ["0", None])
def test_off_calls_nothing(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        monkeypatch.setenv(EXPANDABLE_SEGMENTS_VARIABLE, value)
    assert not set_expandable_segments("musa", lambda: pytest.fail("the namespace was asked for"))


@pytest.mark.parametrize("value", ["", "2", "true", " 1", "on"])
def test_any_other_value_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(EXPANDABLE_SEGMENTS_VARIABLE, value)
    with pytest.raises(ValueError, match="neither 0") as caught:
        GenericAccelerator("cpu").set_allocator_expandable_segments()
    assert repr(value) in str(caught.value)


def test_settings_in_force_are_kept_and_the_effect_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXPANDABLE_SEGMENTS_VARIABLE, "1")
    memory = Memory(PYTORCH_MUSA_ALLOC_CONF="max_split_size_mb:64", expandable_segments=False)
    assert set_expandable_segments("musa", lambda: memory)
    assert memory.calls == ["max_split_size_mb:64,expandable_segments:True"]


def test_a_setting_without_effect_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXPANDABLE_SEGMENTS_VARIABLE, "1")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:native")
    memory = Memory(expandable_segments=False)
    memory._set_allocator_settings = memory.calls.append
    assert not set_expandable_segments("musa", lambda: memory)
    assert memory.calls == ["backend:native,expandable_segments:True"]


@pytest.mark.parametrize("snapshot", [None, lambda: {}, lambda: None])
def test_what_cannot_be_read_back_is_unverified(monkeypatch: pytest.MonkeyPatch, snapshot: Any) -> None:
    monkeypatch.setenv(EXPANDABLE_SEGMENTS_VARIABLE, "1")
    memory = Memory()
    memory._snapshot = snapshot
    with pytest.warns(RuntimeWarning, match="unverified"):
        assert not set_expandable_segments("musa", lambda: memory)
    assert memory.calls == ["expandable_segments:True"]


def test_without_a_setter_it_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXPANDABLE_SEGMENTS_VARIABLE, "1")
    with pytest.warns(RuntimeWarning, match="no function"):
        assert not GenericAccelerator("cpu").set_allocator_expandable_segments()


def test_pytorchs_own_devices_use_its_common_setter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXPANDABLE_SEGMENTS_VARIABLE, "1")
    memory = Memory(expandable_segments=True)
    calls: list[str] = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", calls.append, raising=False)
    monkeypatch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda: "max_split_size_mb:32", raising=False)
    assert set_expandable_segments("cuda", lambda: memory)
    monkeypatch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda: "")
    assert set_expandable_segments("cuda", lambda: memory)
    assert calls == ["max_split_size_mb:32,expandable_segments:True", "expandable_segments:True"]
    assert memory.calls == []
    monkeypatch.delattr(torch._C, "_accelerator_setAllocatorSettings")
    assert allocator.set_expandable_segments("cuda", lambda: memory)
    assert len(memory.calls) == 1
