"""Running a stream program on a backend, through its adapter and PyTorch's public API alone.

For: what the host reads when a program runs on simulated or real devices. Not for: what it should read (`models/happens_before.py`).

Kernels are additions, subtractions and negations of int64, so results are exact. Where a step is slow, lengthy work is put on its stream
first, so that on real devices whatever does not wait for it overtakes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from conformance.accelerator_access import method
from conformance.errors import ClauseViolation
from conformance.models.stream_actions import final, reading
from conformance.programs.stream_buffers import HOST, Buffers
from conformance.programs.stream_program import StreamProgram
from conformance.programs.stream_steps import (
    Allocate,
    AllocateHost,
    Copy,
    Free,
    HostRead,
    HostWrite,
    Kernel,
    Record,
    RecordStream,
    SetDevice,
    Step,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    WaitEvent,
    WaitStream,
)

Readings = dict[str, tuple[int, ...]]
"""By the name of each reading, the distinct values among the elements that the host saw."""

_POLLS = 200
_SLEEP_CYCLES = 1_000_000
_MATRIX, _PRODUCTS = 512, 24


class StreamExecutor:
    """Runs programs on one backend. `elements` is the size of every buffer."""

    def __init__(self, accelerator: Any, elements: int, lengthen: Callable[[int], None] | None = None) -> None:
        self.accelerator = accelerator
        self.elements = elements
        self._lengthen = lengthen

    def run(self, program: StreamProgram) -> Readings:
        """Take every step, wait for all devices and read every live buffer.

        Raises:
            ClauseViolation: a step raised, or an answer of the runtime contradicts itself; the text names the step.
        """
        run = _Run(self, program)
        set_device = method(self.accelerator, "set_device")
        set_device(0)
        try:
            for number, step in enumerate(program.steps):
                run.take(number, step)
            run.finish()
        except ClauseViolation:
            self._calm(program)
            raise
        except Exception as error:
            self._calm(program)
            raise ClauseViolation(f"{run.where} raised {type(error).__name__}: {error}") from error
        finally:
            with contextlib.suppress(Exception):  # what the program found counts, not whether this works afterwards
                set_device(0)
        return run.readings

    def lengthen(self, device: int) -> None:
        """Keep the current stream of a device busy for about a millisecond."""
        if self._lengthen is not None:
            self._lengthen(device)

    def _calm(self, program: StreamProgram) -> None:
        """Let no work of a failed program go on."""
        for device in sorted(set(program.streams)):
            with contextlib.suppress(Exception):
                method(self.accelerator, "synchronize")(device)


class Lengthener:
    """Lengthy work for a backend: the vendor's `_sleep` where its namespace has one, else a chain of matrix products."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self._matrices: dict[int, torch.Tensor] = {}
        module = getattr(accelerator, "accelerator_module", None)
        self._sleep = getattr(module(), "_sleep", None) if module is not None else None

    def __call__(self, device: int) -> None:
        """On the current stream of a device, which must be the current one."""
        if self._sleep is not None:
            self._sleep(_SLEEP_CYCLES)
            return
        if device not in self._matrices:
            self._matrices[device] = torch.zeros(_MATRIX, _MATRIX, device=method(self._accelerator, "device")(device))
            method(self._accelerator, "synchronize")(device)
        matrix = self._matrices[device]
        for _ in range(_PRODUCTS):
            matrix = matrix @ matrix


class _Run:
    """One run of one program."""

    def __init__(self, executor: StreamExecutor, program: StreamProgram) -> None:
        self.executor, self.accelerator, self.program = executor, executor.accelerator, program
        self.where = "making the streams"
        self.readings: Readings = {}
        self._buffers = Buffers(program.streams)
        self._tensors: dict[str, torch.Tensor] = {}
        self._events: dict[str, Any] = {}
        self._streams = [self._make_stream(number, device) for number, device in enumerate(program.streams)]

    def _make_stream(self, number: int, device: int) -> Any:
        if number not in self.program.default_streams:
            return method(self.accelerator, "new_stream")(device)
        try:
            return method(self.accelerator, "default_stream")(device)
        except NotImplementedError:  # a backend need not expose it; the current one is as good here
            return method(self.accelerator, "current_stream")(device)

    def take(self, number: int, step: Step) -> None:  # noqa: PLR0912 - one case a kind of step
        """Take one step."""
        self.where = f"step {number}, `{step}`,"
        self._buffers.apply(step, "step")
        match step:
            case Allocate(buffer, stream, value):
                with self._on(stream):
                    self._tensors[buffer] = self._full(
                        value, device=method(self.accelerator, "device")(self.program.streams[stream])
                    )
            case AllocateHost(buffer, value, pinned):
                self._tensors[buffer] = self._full(value, pin_memory=True) if pinned else self._full(value)
            case Kernel():
                self._kernel(step)
            case Copy():
                self._copy(step)
            case Record(event, stream):
                self._event(event).record(self._streams[stream])
            case WaitEvent(stream, event):
                self._streams[stream].wait_event(self._event(event))
            case WaitStream(stream, other):
                self._streams[stream].wait_stream(self._streams[other])
            case SynchronizeEvent(event, poll):
                self._wait_for(self._event(event), poll)
            case SynchronizeStream(stream, poll):
                self._wait_for(self._streams[stream], poll)
            case SynchronizeDevice(device):
                method(self.accelerator, "synchronize")(device)
            case SetDevice(device):
                method(self.accelerator, "set_device")(device)
            case RecordStream(buffer, stream):
                self._tensors[buffer].record_stream(self._streams[stream])
            case Free(buffer):
                del self._tensors[buffer]
            case HostWrite(buffer, value):
                self._tensors[buffer].fill_(value)
            case HostRead(buffer, None):
                self._see(reading(number), self._tensors[buffer])
            case HostRead(buffer, int(stream)):
                with self._on(stream):
                    self._see(reading(number), self._tensors[buffer].cpu())

    def finish(self) -> None:
        """Wait for all devices and read what is left."""
        for device in sorted(set(self.program.streams)):
            self.where = f"synchronize({device}) after the last step"
            method(self.accelerator, "synchronize")(device)
        for buffer, tensor in self._tensors.items():
            self.where = f"reading {buffer} after the last step"
            self._see(final(buffer), tensor if self._buffers.places[buffer] == HOST else tensor.cpu())

    # Parts of steps -----------------------------------------------------------------------------------------------------------

    def _on(self, stream: int) -> Any:
        return method(self.accelerator, "stream")(self._streams[stream])

    def _full(self, value: int, **where: Any) -> torch.Tensor:
        return torch.full((self.executor.elements,), value, dtype=torch.int64, **where)

    def _kernel(self, step: Kernel) -> None:
        write = self._tensors[step.write]
        with self._on(step.stream):
            if step.slow:
                self.executor.lengthen(self.program.streams[step.stream])
            if not step.keep:
                write.fill_(step.value)
            if step.read is not None:
                write.sub_(self._tensors[step.read])
            if step.keep:
                write.neg_()
                if step.read is None:
                    write.add_(step.value)

    def _copy(self, step: Copy) -> None:
        target, source = self._tensors[step.target], self._tensors[step.source]
        beside = contextlib.nullcontext() if step.other is None else self._on(step.other)
        with beside, self._on(step.stream):
            if step.slow:
                self.executor.lengthen(self.program.streams[step.stream])
            target.copy_(source, non_blocking=not step.blocking)

    def _event(self, name: str) -> Any:
        if name not in self._events:
            self._events[name] = method(self.accelerator, "new_event")()
        return self._events[name]

    def _wait_for(self, what: Any, poll: bool) -> None:
        """Wait for an event or a stream. Polling may end early: what is synchronized must query true."""
        if poll and any(what.query() for _ in range(_POLLS)):
            return
        what.synchronize()
        if not what.query():
            raise ClauseViolation(f"{self.where} after synchronize() had returned, query() was false; nothing was issued since")

    def _see(self, name: str, host: torch.Tensor) -> None:
        if host.device.type != "cpu":
            raise ClauseViolation(f"{self.where} gave a tensor on {host.device}; due was one on the host")
        self.readings[name] = tuple(torch.unique(host).tolist())
