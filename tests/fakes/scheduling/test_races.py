"""The race detector: what it reports, how it says it, and what it leaves alone."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import fakes
from fakes.errors import MissingRecordStreamError, RaceError

SCHEDULES = ["eager", "lazy", "seeded", "directed"]


@pytest.fixture(params=SCHEDULES)
def machine(plain_machine: fakes.Machine, request: pytest.FixtureRequest) -> fakes.Machine:
    """A machine that detects races, under every schedule."""
    plain_machine.reset(schedule=request.param, detect_races=True)
    return plain_machine


def _on(stream: Any) -> Any:
    return torch.musa.stream(stream)


def test_a_read_without_a_wait_is_reported_with_both_lines(machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with _on(side):
        tensor.mul_(2)
    with pytest.raises(RaceError) as caught:
        tensor + 1
    error = caught.value
    assert (error.first.kind, error.first.launch, error.first.stream) == ("write", "aten::mul_", "stream 1 of device 0")
    assert (error.second.kind, error.second.launch, error.second.stream) == ("read", "aten::add", "stream 0 of device 0")
    first_line = test_a_read_without_a_wait_is_reported_with_both_lines.__code__.co_firstlineno + 5
    assert f"test_races.py:{first_line} in test_a_read" in error.first.site
    assert f"test_races.py:{first_line + 2} in test_a_read" in error.second.site
    assert "never waited for that stream" in error.missing
    for part in (error.first.site, error.second.site, error.missing, "wait for it before the second"):
        assert part in str(error)
    assert not isinstance(error, MissingRecordStreamError)


def test_the_event_that_was_not_waited_for_is_named(machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    side.wait_stream(torch.musa.current_stream())
    early = side.record_event()
    with _on(side):
        tensor.mul_(2)
    side.record_event()
    torch.musa.current_stream().wait_event(early)  # the wrong one
    with pytest.raises(
        RaceError, match=r"stream 0 of device 0 never waited for the event recorded on stream 1 .*\(launch \d+, at .*py"
    ):
        tensor.add_(1)


@pytest.mark.parametrize("second", ["read", "write"])
def test_a_write_after_a_read_is_one_and_two_reads_are_not(machine: fakes.Machine, second: str) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with _on(side):
        seen = tensor + 1
    if second == "read":
        tensor + 2
    else:
        with pytest.raises(RaceError, match="not ordered: read, then write"):
            tensor.zero_()
    torch.musa.synchronize()
    del seen


def _event(side: Any) -> None:
    torch.musa.current_stream().wait_event(side.record_event())


def _stream(side: Any) -> None:
    torch.musa.current_stream().wait_stream(side)


def _event_on_the_host(side: Any) -> None:
    side.record_event().synchronize()


def _polling(side: Any) -> None:
    event = side.record_event()
    while not event.query():
        pass


def _through_a_third_stream(side: Any) -> None:
    third = torch.musa.Stream()
    third.wait_stream(side)
    torch.musa.current_stream().wait_stream(third)


WAITS = [_event, _stream, _event_on_the_host, _polling, _through_a_third_stream, lambda side: side.synchronize()]


@pytest.mark.parametrize("wait", WAITS)
def test_every_way_of_waiting_orders(machine: fakes.Machine, wait: Any) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with _on(side):
        tensor.mul_(2)
    wait(side)
    assert (tensor + 1).tolist() == [3] * 4
    assert machine.scheduler.races == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("first", "second", "races"),
    [
        (slice(0, 4), slice(4, 8), False),
        (slice(0, 8, 2), slice(1, 8, 2), False),
        (slice(0, 5), slice(4, 8), True),
        (slice(0, 8, 2), slice(1, 8), True),
    ],
)
def test_disjoint_slices_of_one_tensor_are_no_race(machine: fakes.Machine, first: slice, second: slice, races: bool) -> None:
    side = torch.musa.Stream()
    tensor = torch.zeros(8, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with _on(side):
        tensor[first].fill_(1)
    if races:
        with pytest.raises(RaceError):
            tensor[second].fill_(2)
    else:
        tensor[second].fill_(2)
    torch.musa.synchronize()


def test_columns_are_disjoint_too(machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    matrix = torch.zeros(3, 4, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with _on(side):
        matrix[:, :2].fill_(1)
    matrix[:, 2:].fill_(2)
    with pytest.raises(RaceError):
        matrix[1].fill_(3)


def test_without_any_synchronization_the_use_and_the_free_are_both_reported(machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    with _on(side), pytest.raises(RaceError, match="not ordered: write, then read") as caught:
        tensor + 1
    assert not isinstance(caught.value, MissingRecordStreamError)
    del tensor, caught
    gc.collect()
    with pytest.raises(MissingRecordStreamError):
        torch.musa.synchronize()
    torch.musa.synchronize()


@pytest.mark.parametrize("recorded", [False, True])
def test_a_user_that_waited_for_the_creator_is_in_order_but_the_free_is_not(machine: fakes.Machine, recorded: bool) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with _on(side):
        seen = tensor + 1
    if recorded:
        tensor.record_stream(side)
        del tensor
        torch.musa.synchronize()
        assert seen.tolist() == [2] * 4
    else:
        del tensor
        with pytest.raises(MissingRecordStreamError, match="missing record_stream") as caught:
            torch.ones(4, device="musa")
        assert caught.value.second.kind == "free"
        assert "record_stream(stream) for stream 1 of device 0" in str(caught.value)
        torch.musa.synchronize()


@pytest.mark.parametrize("by_host", [False, True])
def test_a_creator_that_waited_for_the_user_may_free(machine: fakes.Machine, by_host: bool) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with _on(side):
        seen = tensor + 1
    if by_host:
        torch.musa.synchronize()
    else:
        torch.musa.current_stream().wait_stream(side)
    del tensor
    again = torch.full((4,), 7.0, device="musa")
    torch.musa.synchronize()
    assert seen.tolist() == [2] * 4 and again.tolist() == [7] * 4
    assert machine.scheduler.races == []  # type: ignore[attr-defined]


def test_reuse_on_the_same_stream_is_none(machine: fakes.Machine) -> None:
    for step in range(20):
        tensor = torch.full((64,), float(step), device="musa")
        tensor = tensor * 2
        del tensor
    torch.musa.synchronize()
    assert machine.scheduler.races == []  # type: ignore[attr-defined]


def test_copies_between_devices_order_both_sides(machine: fakes.Machine) -> None:
    first = torch.ones(4, device="musa:0")
    second = first.to("musa:1")
    second.add_(1)
    first.copy_(second)
    assert first.tolist() == [2] * 4
    assert machine.scheduler.races == []  # type: ignore[attr-defined]


def test_pinned_memory_takes_part(machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    torch.musa.synchronize()
    host = torch.zeros(4).pin_memory()
    host.copy_(tensor, non_blocking=True)
    with _on(side), pytest.raises(RaceError, match="write, then read"):
        host.to("musa", non_blocking=True)
    torch.musa.synchronize()
    del host
    for _ in range(5):  # other pinned memory, possibly in the same place
        with _on(torch.musa.Stream()):
            torch.ones(4).pin_memory().to("musa", non_blocking=True)
    torch.musa.synchronize()


def test_a_host_read_is_an_access(machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones((), device="musa")
    side.wait_stream(torch.musa.current_stream())
    with _on(side):
        tensor.add_(1)
    with pytest.raises(RaceError, match="_local_scalar_dense"):
        tensor.item()


def test_what_only_asks_for_geometry_reads_nothing(machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    side.wait_stream(torch.musa.current_stream())
    with _on(side):
        tensor.add_(1)
    torch.empty_like(tensor)
    torch.zeros_like(tensor)
    tensor.new_full((2,), 3.0)
    tensor.view(2, 2)
    torch.musa.synchronize()


def test_detection_is_a_choice(plain_machine: fakes.Machine) -> None:
    side = torch.musa.Stream()
    tensor = torch.ones(4, device="musa")
    with _on(side):
        tensor.mul_(2)
    tensor + 1
    with pytest.raises(ValueError, match="give True or False"):
        plain_machine.reset(detect_races="yes")  # type: ignore[arg-type]
