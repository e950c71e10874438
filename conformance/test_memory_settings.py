"""MEM: memory before first use, closed handles, and the allocator's expandable segments."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import device_type_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, not_checkable, require
from conformance.child_programs import memory as children
from conformance.child_programs.answers import answer_of

_VARIABLE = "SLIME_ENABLE_EXPANDABLE_SEGMENTS"
_FIRST_USE = "conformance.child_programs.memory:before_first_use"


# First use


@clause("MEM-11")
def test_statistics_before_first_use_are_zero(backend: BackendUnderTest) -> None:
    for found in answer_of(backend, _FIRST_USE)["found"]:
        answer = found["answer"]
        if found["counts"]:
            require(type(answer) is int and answer == 0, f"{found['question']} is {answer!r}; due was 0")
        else:
            require(
                not isinstance(answer, str),
                f"{found['question']} raised {answer}; before first use there is nothing, which is no error",
            )


@clause("MEM-11")
def test_statistics_before_first_use_open_no_context(backend: BackendUnderTest) -> None:
    answer = answer_of(backend, _FIRST_USE)
    if not answer["observable"]:
        not_checkable(f"nothing on this host tells on which {device_type_of(backend.accelerator)} devices a process has a context")
    for found in (*answer["found"], answer["info"]):
        extra = set(found["open"]) - set(found["allowed"])
        require(not extra, f"after {found['question']}, contexts are open on {found['open']}; due were at most {found['allowed']}")


@clause("MEM-8")
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=4), times=st.integers(1, 3))
def test_collecting_closed_handles_leaves_live_tensors(backend: BackendUnderTest, sizes: list[int], times: int) -> None:
    accelerator = backend.accelerator
    count = int(method(accelerator, "device_count")())
    live = [torch.arange(size, device=method(accelerator, "device")(position % count)) for position, size in enumerate(sizes)]
    for _ in range(times):
        answer = method(accelerator, "ipc_collect")()
        require(answer is None, f"ipc_collect() answered {answer!r}; due was None")
    for size, tensor in zip(sizes, live, strict=True):
        require(tensor.tolist() == list(range(size)), f"after {times} ipc_collect(), arange({size}) is {tensor.tolist()}")


@clause("MEM-8")
def test_closed_handles_can_be_collected_before_first_use(backend: BackendUnderTest) -> None:
    held = backend.in_child(children.collect_before_first_use)["held"]
    require(held == [0, 1, 2, 3, 4], f"after ipc_collect() as the first use, arange(5) is {held}")


# Expandable segments


@contextlib.contextmanager
def _variable(value: str | None) -> Iterator[None]:
    before = os.environ.get(_VARIABLE)
    try:
        _set(value)
        yield
    finally:
        _set(before)


def _set(value: str | None) -> None:
    if value is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = value


_odd_values = st.sampled_from(["", "2", "-1", "00", "01", "1.0", "true", "True", "yes", "on", " 1", "1 ", "0,1", "１", "None"])


@clause("MEM-9")
@given(value=_odd_values | st.text(st.characters(min_codepoint=33, max_codepoint=0x17F), max_size=4))
def test_any_other_value_is_refused(backend: BackendUnderTest, value: str) -> None:
    if value in ("0", "1"):
        return
    call = method(backend.accelerator, "set_allocator_expandable_segments")
    with _variable(value):
        refusal = expect_refusal(call, errors=(ValueError,))
    require(
        value in str(refusal) or repr(value) in str(refusal),
        f"{_VARIABLE}={value!r} was refused, but the text does not quote the value: {refusal}",
    )


_TWO_SETTINGS = "max_split_size_mb:64,garbage_collection_threshold:0.8"


@clause("MEM-9")
def test_only_on_changes_the_allocator(backend: BackendUnderTest) -> None:
    unset, off, on = _in_child(backend, _TWO_SETTINGS, [(None, ""), ("0", ""), ("1", "")])
    for value, answer in ((None, unset), ("0", off)):
        require(answer["answer"] is False, f"with {_VARIABLE}={value!r} the answer is {answer['answer']!r}; due was False")
        require(not answer["calls"], f"with {_VARIABLE}={value!r} the allocator's setter was called with {answer['calls']}")
    _require_on(f"with {_VARIABLE}=1 and the settings {_TWO_SETTINGS!r} by the environment: ", on, _TWO_SETTINGS)


@clause("MEM-9")
def test_on_keeps_settings_made_at_run_time(backend: BackendUnderTest) -> None:
    plain, later = _in_child(backend, None, [("1", ""), ("1", _TWO_SETTINGS)])
    _require_on(f"with {_VARIABLE}=1: ", plain, "")
    # What was put in force at run time can be kept only where a snapshot tells it.
    known = _TWO_SETTINGS if later["before"] is not None else ""
    _require_on(f"with {_VARIABLE}=1 and the settings {_TWO_SETTINGS!r} at run time: ", later, known)


def _require_on(story: str, answer: dict[str, Any], in_force: str) -> None:
    reports = " | ".join(answer["reports"])
    if not answer["calls"]:
        require(not answer["has_setter"], f"{story}the allocator's setter was not called")
        require(answer["answer"] is False, f"{story}there is no setter, and the answer is {answer['answer']!r}; due was False")
        require(reports.strip(), f"{story}there is no setter, and nothing was warned")
        return
    require(len(answer["calls"]) == 1, f"{story}the allocator's setter was called {len(answer['calls'])} times: {answer['calls']}")
    made_with = children.parts_of(answer["calls"][0])
    missing = {*children.parts_of(in_force), "expandable_segments:True"} - set(made_with)
    require(not missing, f"{story}the setter was called with {answer['calls'][0]!r}, without {', '.join(sorted(missing))}")
    _require_the_effect(story, answer, reports)


def _require_the_effect(story: str, answer: dict[str, Any], reports: str) -> None:
    after = answer["after"] or {}
    if "expandable_segments" not in after:
        require(
            answer["answer"] is not True and "unverified" in f"{reports} {answer['answer']}",
            f"{story}no snapshot tells whether it took effect; the answer is {answer['answer']!r} and the reports are {reports!r}; "
            "due was 'unverified'",
        )
        return
    due = after["expandable_segments"] in ("True", "1")
    require(
        answer["answer"] is due,
        f"{story}the answer is {answer['answer']!r}; the snapshot has expandable_segments: {due}, so due was {due}",
    )
    before = answer["before"] or {}
    changed = {
        name: (value, after.get(name))
        for name, value in before.items()
        if name != "expandable_segments" and not name.endswith("ALLOC_CONF") and after.get(name) != value
    }
    require(not changed, f"{story}other settings changed (before, after): {changed}")


def _in_child(backend: BackendUnderTest, settings: str | None, steps: list[tuple[str | None, str]]) -> list[dict[str, Any]]:
    """What each step gives in a process that starts with allocator settings."""
    own = f"PYTORCH_{device_type_of(backend.accelerator).upper()}_ALLOC_CONF"
    answers: list[dict[str, Any]] = backend.in_child(
        children.expandable_segments,
        environment={_VARIABLE: None, "PYTORCH_ALLOC_CONF": None, own: settings},
        variable=_VARIABLE,
        steps=steps,
    )
    return answers
