"""Streams and events of a simulated device, where everything runs at once."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.usefixtures("simulated_machine")


def test_streams_are_torch_streams_with_identity() -> None:
    first, second = torch.musa.Stream(), torch.musa.Stream(device="musa:1", priority=-1)
    assert isinstance(first, torch.Stream)
    assert first != second
    assert first == torch.musa.Stream(stream_id=first.stream_id, device_index=0)
    assert len({first, second, torch.musa.default_stream(), torch.musa.current_stream()}) == 3
    assert (first.device, second.device) == (torch.device("musa:0"), torch.device("musa:1"))
    assert second.priority == -1
    assert torch.musa.default_stream(1) == torch.musa.default_stream("musa:1") != torch.musa.default_stream(0)
    assert first.query()
    first.synchronize()
    assert "musa:0" in repr(first)
    with pytest.raises(RuntimeError, match="no stream 99"):
        torch.musa.Stream(stream_id=99)
    with pytest.raises(TypeError, match="nonsense"):
        torch.musa.Stream(nonsense=1)


def test_generic_streams_and_events_are_the_devices() -> None:
    stream = torch.Stream(device="musa:1")
    assert isinstance(stream, torch.musa.Stream)
    assert isinstance(torch.musa.current_stream(), torch.Stream)
    event = torch.Event("musa", enable_timing=True)
    assert isinstance(event, torch.musa.Event)
    assert isinstance(event, torch.Event)
    event.record(torch.accelerator.current_stream())
    assert event.query()
    assert not isinstance(torch.Stream(device="cpu"), torch.musa.Stream)


@pytest.mark.parametrize("enter", [torch.accelerator, None], ids=["stream itself", "namespace"])
def test_stream_contexts_select_and_restore_device_and_stream(enter: object) -> None:
    stream = torch.musa.Stream(1)
    context = stream if enter is not None else torch.musa.stream(stream)
    with pytest.raises(KeyError), context:
        assert torch.musa.current_device() == 1
        assert torch.musa.current_stream() == stream
        inner = torch.musa.Stream(0)
        with torch.musa.stream(inner):
            assert torch.musa.current_device() == 0
            assert torch.musa.current_stream(1) == stream
            assert torch.musa.current_stream() == inner
        assert torch.musa.current_stream(0) == torch.musa.default_stream(0)
        torch.musa.set_device(0)
        raise KeyError
    assert torch.musa.current_device() == 0
    assert torch.musa.current_stream(1) == torch.musa.default_stream(1)


def test_no_stream_is_no_context() -> None:
    with torch.musa.stream(None):
        assert torch.musa.current_stream() == torch.musa.default_stream()
    torch.musa.set_stream(None)


def test_events_record_wait_and_query() -> None:
    stream, other = torch.musa.Stream(), torch.musa.Stream()
    event = torch.musa.Event()
    assert event.query()
    event.wait(stream)
    assert event.device is None
    event.record(stream)
    other.wait_event(event)
    other.wait_stream(stream)
    event.synchronize()
    assert event.query()
    assert stream.record_event().device == torch.device("musa:0")
    assert stream.record_event(event) is event


def test_an_event_of_one_device_is_not_recorded_on_another() -> None:
    event = torch.musa.Stream(0).record_event()
    with pytest.raises(RuntimeError, match="does not match"):
        event.record(torch.musa.Stream(1))
    torch.musa.Stream(1).wait_event(event)


def test_elapsed_time_follows_the_work() -> None:
    start, middle, end = (torch.musa.Event(enable_timing=True) for _ in range(3))
    start.record()
    tensor = torch.ones(4, device="musa")
    middle.record()
    for _ in range(20):
        tensor = tensor + 1
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(middle) < middle.elapsed_time(end)
    assert start.elapsed_time(end) == start.elapsed_time(end)
    assert start.elapsed_time(start) == 0
    start.record()
    torch.musa._sleep(5_000_000)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 5


def test_elapsed_time_refuses_what_has_no_time() -> None:
    timed, untimed, unrecorded = torch.musa.Event(enable_timing=True), torch.musa.Event(), torch.musa.Event(True)
    timed.record()
    untimed.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        timed.elapsed_time(untimed)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(unrecorded)
    other = torch.musa.Event(enable_timing=True)
    other.record(torch.musa.Stream(1))
    with pytest.raises(RuntimeError, match="devices 0 and 1"):
        timed.elapsed_time(other)
    with pytest.raises(TypeError):
        timed.elapsed_time(3)


def test_record_stream_and_foreign_streams() -> None:
    tensor = torch.ones(3, device="musa")
    tensor.record_stream(torch.musa.Stream())
    with pytest.raises(TypeError, match="not a stream"):
        tensor.record_stream("musa:0")
    with pytest.raises(RuntimeError, match="between processes"):
        torch.musa.Event(interprocess=True)
