"""Programs about the first use of a device, each in a process of its own (DEV-6, DEV-12, CAP-4).

For: `test_devices.py` and `test_capabilities.py`. Each returns plain data, which the check judges. Not for: judging.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import torch

from conformance.accelerator_access import device_type_of, method
from conformance.contexts import open_contexts, runtime_is_initialized


def changes_after_first_use(
    make_accelerator: Callable[[], Any], variable: str, later_values: list[str | None], physical_id: int
) -> dict[str, Any]:
    """Use the device, change the variable to each later value in turn, and ask again after each change."""
    accelerator = make_accelerator()
    method(accelerator, "set_device")(0)
    count = int(method(accelerator, "device_count")())
    first = {"usable": _usable(accelerator, count), **_counted_and_resolved(accelerator, physical_id)}
    changes = []
    for later in later_values:
        if later is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = later
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answers = _counted_and_resolved(accelerator, physical_id)
            again = _counted_and_resolved(accelerator, physical_id)
        reports = [str(warning.message) for warning in caught if variable in str(warning.message)]
        reports += [value for value in answers.values() if isinstance(value, str) and variable in value]
        changes.append(
            {"later": later, "reports": reports, "answers": answers, "again": again, "usable": _usable(accelerator, count)}
        )
    return {"first": first, "changes": changes}


def _counted_and_resolved(accelerator: Any, physical_id: int) -> dict[str, int | str]:
    return {
        "device_count()": _answer(method(accelerator, "device_count")),
        f"resolve_visible_device_id({physical_id})": _answer(method(accelerator, "resolve_visible_device_id"), physical_id),
    }


def _usable(accelerator: Any, count: int) -> dict[str, bool]:
    """Whether tensors can be made on the first devices, at most two, and on the one past the end.

    Not on all: a host may have many, and a context on each costs its memory.
    """
    return {str(index): _can_compute(accelerator, index) for index in (*range(min(count, 2)), count)}


def _can_compute(accelerator: Any, index: int) -> bool:
    try:
        return torch.ones(1, device=torch.device(device_type_of(accelerator), index)).sum().item() == 1
    except Exception:  # noqa: BLE001 - PyTorch's and vendors' refusals differ
        return False


def _answer(call: Callable[..., Any], *arguments: Any) -> int | str:
    try:
        return int(call(*arguments))
    except Exception as error:  # noqa: BLE001 - the answer is data here, refusals included
        return f"{type(error).__name__}: {error}"


def contexts_after_queries(make_accelerator: Callable[[], Any]) -> dict[str, Any]:
    """Ask everything that must open no context: first before any use, then with the last device in use.

    Reports what was open after each question.
    """
    accelerator = make_accelerator()
    device_type = device_type_of(accelerator)
    count = int(method(accelerator, "device_count")())
    before = open_contexts(device_type, count)
    if before is None:
        return {"observable": False}
    found = _open_after_each(accelerator, count, "before any use", [])
    last = count - 1
    method(accelerator, "set_device")(last)
    torch.ones(1, device=torch.device(device_type, last)).sum().item()
    found += _open_after_each(accelerator, count, f"with device {last} in use", [last])
    return {"observable": True, "before": sorted(before), "found": found}


def _open_after_each(accelerator: Any, count: int, when: str, used: list[int]) -> list[dict[str, Any]]:
    allowed, found = set(used), []
    for text, asked, question in _questions(accelerator, count, is_used=bool(used)):
        try:
            question()
        except NotImplementedError:  # denied, which CAP-3 judges
            continue
        allowed |= set(asked)
        opened = open_contexts(accelerator.device_type, count) or set()
        found.append({"question": f"{text} {when}", "allowed": sorted(allowed), "open": sorted(opened)})
    return found


def _questions(accelerator: Any, count: int, *, is_used: bool) -> list[tuple[str, tuple[int, ...], Callable[[], Any]]]:
    """(text, devices whose context it may open, question). A question that the adapter lacks is another clause's matter."""
    questions: list[tuple[str, tuple[int, ...], Callable[[], Any]]] = []

    def add(name: str, *arguments: Any, asked: tuple[int, ...] = ()) -> None:
        function = getattr(accelerator, name, None)
        if callable(function):
            shown = ", ".join(repr(argument) for argument in arguments)
            questions.append((f"{name}({shown})", asked, lambda: function(*arguments)))

    for name in ("is_available", "device_count", "current_device", "device", "device_name", "visible_devices", "physical_devices"):
        add(name)
    for index in range(count):
        add("device", index)
        for name in (
            "memory_allocated",
            "memory_reserved",
            "max_memory_allocated",
            "max_memory_reserved",
            "reset_peak_memory_stats",
        ):
            add(name, index)
    for name in ("memory_allocated", "memory_reserved", "reset_peak_memory_stats", "empty_cache", "ipc_collect", "memory_module"):
        add(name)
    if is_used:
        # Streams and properties of a device may open that device's own context.
        for index in reversed(range(count)):
            add("current_stream", index, asked=(index,))
            add("get_device_properties", index, asked=(index,))
    return questions


def answers_over_a_process(make_accelerator: Callable[[], Any], names: list[str], early: list[str]) -> dict[str, Any]:
    """Every capability's answer in a fresh process, after use of the device, and by another adapter object.

    `early` are the names whose answer must initialise nothing; they are asked first.
    """
    accelerator = make_accelerator()
    device_type = device_type_of(accelerator)
    initialized_before = runtime_is_initialized(device_type)
    supports = method(accelerator, "supports")
    initialised_by: list[str] = []
    first: dict[str, Any] = {}
    for name in early:
        first[name] = supports(name)
        if runtime_is_initialized(device_type) and not initialized_before and not initialised_by:
            initialised_by.append(name)
    first |= {name: supports(name) for name in names if name not in first}
    accelerator.set_device(int(accelerator.device_count()) - 1)
    torch.ones(1, device=accelerator.device()).sum().item()
    return {
        "observable": initialized_before is not None,
        "initialised_by": initialised_by,
        "first": first,
        "after_use": {name: supports(name) for name in reversed(names)},
        "other_adapter": {name: make_accelerator().supports(name) for name in names},
    }


def fork_after_selection(make_accelerator: Callable[[], Any]) -> dict[str, Any]:
    """Make the adapter, ask what selection asks, fork, and use the device in the child."""
    accelerator = make_accelerator()
    accelerator.is_available()
    accelerator.device_count()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            accelerator.set_device(0)
            text = f"{torch.ones(2, device=accelerator.device(0)).sum().item():g}"
        except BaseException as error:  # noqa: BLE001 - reported through the pipe; the child must not return
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode()[:4096])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        text = answers.read().decode()
    os.waitpid(child, 0)
    return {"answer": text}
