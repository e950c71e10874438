"""THR: what belongs to a thread, and where backward runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import index_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, require, unsupported
from conformance.gating import denial_evidence
from conformance.stream_runs import StreamRuns

_TIMEOUT = 60.0  # seconds for a thread that does next to nothing


def _in_thread(work: Callable[[], Any]) -> Any:
    """What a function answers in a thread of its own; what it raises is raised here."""
    answers: list[Any] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the check waits
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(_TIMEOUT)
    if errors:
        raise errors[0]
    require(answers, f"a thread did not end within {_TIMEOUT:g} s")
    return answers[0]


def _require_capability(backend: BackendUnderTest, capability: str) -> None:
    if not method(backend.accelerator, "supports")(capability):
        unsupported(f"{capability}: {denial_evidence(backend, capability)}")


@clause("THR-1")
@pytest.mark.parametrize("device", [0, 1])
def test_the_current_stream_belongs_to_the_thread(backend: BackendUnderTest, device: int) -> None:
    _require_capability(backend, "streams")
    accelerator = backend.accelerator
    device %= backend.device_count
    current = method(accelerator, "current_stream")
    outside = current(device)
    mine, theirs = (method(accelerator, "new_stream")(device) for _ in range(2))

    def other() -> Any:
        before = current(device)
        with method(accelerator, "stream")(theirs):
            inside = current(device)
        return before, inside, current(device)

    with method(accelerator, "stream")(mine):
        before, inside, after = _in_thread(other)
        found = current(device)
    require(before != mine, f"a new thread starts on {before}, which is current in the thread that started it only")
    require(inside == theirs, f"inside a stream context, another thread's current stream is {inside}; due was {theirs}")
    require(after == before, f"after its stream context, another thread's current stream is {after}; due was {before}")
    require(found == mine, f"another thread's stream context made {found} current here; due was {mine}")
    require(current(device) == outside, f"after all, the current stream is {current(device)}; due was {outside}")


@clause("THR-1")
def test_threads_issue_to_their_own_streams(backend: BackendUnderTest, stream_runs: StreamRuns) -> None:
    """Several threads are inside their stream contexts at the same time, and each one's work is done when its own stream is."""
    _require_capability(backend, "streams")
    accelerator = backend.accelerator
    count = 4
    for schedule in stream_runs.schedules(1):
        if schedule is not None:
            backend.restart(schedule.name, schedule.seed)
        streams = [method(accelerator, "new_stream")(number % backend.device_count) for number in range(count)]
        barrier = threading.Barrier(count)
        found: list[Any] = [None] * count

        def work(number: int, streams: list[Any] = streams, barrier: Any = barrier, found: list[Any] = found) -> None:
            stream, device = streams[number], number % backend.device_count
            try:
                with method(accelerator, "stream")(stream):
                    barrier.wait(_TIMEOUT)
                    current = method(accelerator, "current_stream")(device)
                    tensor = torch.full((4,), number, device=method(accelerator, "device")(device)).neg_()
                    barrier.wait(_TIMEOUT)
                    tensor.add_(1)
                stream.synchronize()
                found[number] = (current == stream, tensor.cpu().tolist())
            except Exception as error:  # noqa: BLE001 - the check reports it
                barrier.abort()
                found[number] = error

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_TIMEOUT)
        for number, answer in enumerate(found):
            due = (True, [1 - number] * 4)
            require(
                answer == due,
                f"thread {number} of {count}, each in a stream context of its own, found (its stream is current, result) = {answer!r}; "
                f"due was {due}",
            )


@clause("THR-1")
def test_autocast_belongs_to_the_thread(backend: BackendUnderTest) -> None:
    _require_capability(backend, "amp")
    accelerator = backend.accelerator
    dtype = next((one for one, name in _AUTOCAST if method(accelerator, "supports")(name)), None)
    if dtype is None:
        unsupported("autocast's dtypes: neither bfloat16 nor float16 is supported")
    inputs = torch.ones(2, 2, device=method(accelerator, "device")(0))

    def product() -> torch.dtype:
        return (inputs @ inputs).dtype

    def within() -> torch.dtype:
        with method(accelerator, "autocast")(dtype=dtype):
            entered.set()
            left.wait(_TIMEOUT)
            return product()

    with method(accelerator, "autocast")(dtype=dtype):
        theirs, mine = _in_thread(product), product()
    require(theirs == torch.float32, f"autocast of one thread gives products of {theirs} in another; due was torch.float32")
    require(mine == dtype, f"inside autocast(dtype={dtype}), with another thread beside it, a product has {mine}")
    entered, left = threading.Event(), threading.Event()
    answers: list[torch.dtype] = []
    thread = threading.Thread(target=lambda: answers.append(within()), daemon=True)
    thread.start()
    entered.wait(_TIMEOUT)
    found = product()
    left.set()
    thread.join(_TIMEOUT)
    require(found == torch.float32, f"while another thread is inside autocast, a product here has {found}; due was torch.float32")
    require(answers == [dtype], f"inside autocast(dtype={dtype}) of its own, another thread's product has {answers}")


_AUTOCAST = ((torch.bfloat16, "bf16"), (torch.float16, "fp16"))


class _Watched(torch.autograd.Function):
    """Doubles, and notes where its backward runs."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor, watch: Callable[[], Any]) -> torch.Tensor:
        context.watch = watch
        return value * 2

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        context.watch()
        return gradient * 2, None


@clause("THR-1", examples=0.3)
@given(
    device=st.integers(0, 1),
    current=st.integers(0, 1),
    seed=st.integers(0, 1 << 16),
    elsewhere=st.sampled_from(("", "forward", "backward")),
)
def test_backward_runs_on_the_forwards_device_and_stream(
    stream_runs: StreamRuns, device: int, current: int, seed: int, elsewhere: str
) -> None:
    """`elsewhere` is what another thread does, with its own current device and stream."""
    backend = stream_runs.backend
    accelerator = backend.accelerator
    device, current = device % backend.device_count, current % backend.device_count
    has_streams = bool(method(accelerator, "supports")("streams"))
    for schedule in stream_runs.schedules(seed):
        if schedule is not None:
            backend.restart(schedule.name, schedule.seed)
        seen: list[Any] = []

        def watch(seen: list[Any] = seen) -> None:
            stream = method(accelerator, "current_stream")(device) if has_streams else None
            seen.append((int(method(accelerator, "current_device")()), stream))

        stream = method(accelerator, "new_stream")(device) if has_streams else None
        method(accelerator, "set_device")(current)
        leaf = torch.full((4,), 3.0, device=method(accelerator, "device")(device), requires_grad=True)
        if stream is not None:
            stream.wait_stream(method(accelerator, "current_stream")(device))

        def forward(leaf: torch.Tensor = leaf, stream: Any = stream, watch: Callable[[], None] = watch) -> torch.Tensor:
            context = method(accelerator, "device_context")(device) if stream is None else method(accelerator, "stream")(stream)
            with context:
                return _Watched.apply(leaf, watch).sum()  # type: ignore[no-any-return, no-untyped-call]

        loss = _in_thread(forward) if elsewhere == "forward" else forward()

        def backward(loss: torch.Tensor = loss, stream: Any = stream, leaf: torch.Tensor = leaf) -> tuple[int, Any]:
            method(accelerator, "set_device")(current)
            if stream is not None:
                method(accelerator, "current_stream")(device).wait_stream(stream)
            loss.backward()  # type: ignore[no-untyped-call]
            found = int(method(accelerator, "current_device")())
            # PyTorch's engine lets the caller's current stream wait for the gradients.
            return found, None if leaf.grad is None else leaf.grad.cpu().tolist()

        found, gradient = _in_thread(backward) if elsewhere == "backward" else backward()
        due = (device, stream)
        where = f" ({elsewhere} in another thread)" if elsewhere else ""
        require(seen == [due], f"backward ran with (device, stream) current {seen}; the forward ran on {due}{where}")
        require(found == current, f"after backward, device {found} is current; before it was {current}{where}")
        require(
            gradient == [2.0] * 4,
            f"after backward, the gradient on the stream that was current where it was called is {gradient}; due was 2{where}",
        )
        index = None if leaf.grad is None else index_of(accelerator, leaf.grad.device)
        require(index == device, f"the gradient of a leaf on device {device} is on device {index}")
    method(accelerator, "set_device")(0)
