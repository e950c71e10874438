"""Typed errors of the simulated machine.

For: what `fakes` raises about its own use. Not for: what a simulated device raises as hardware does; those are PyTorch's own
(`torch.OutOfMemoryError`, RuntimeError, TypeError) with PyTorch's wording.

    FakesError
    ├── UnknownPersonaError (ValueError)         a persona that nobody described
    ├── MachineConfigurationError (ValueError)   devices, memory, seed or another setting out of range
    │   └── UnsupportedScheduleError             a schedule that does not exist (yet)
    ├── MachineInstalledError (RuntimeError)     a machine is installed already, or the process is another persona's
    ├── MachineNotInstalledError (RuntimeError)  a machine is used after it was uninstalled
    ├── UnsupportedTorchError (RuntimeError)     a PyTorch that cannot carry a simulated device
    ├── RaceError (RuntimeError)                 two accesses to the same memory that nothing orders (`detect_races=True`)
    │   └── MissingRecordStreamError             memory that is freed while another stream may still use it
    └── UnfinishedExplorationError (RuntimeError)  a program with more orders than `explore` was allowed to run
"""

from __future__ import annotations

from dataclasses import dataclass


class FakesError(Exception):
    """Base of every error about the use of this package."""


class UnknownPersonaError(FakesError, ValueError):
    """A persona that nobody described; the message lists those that exist."""


class MachineConfigurationError(FakesError, ValueError):
    """A setting of a machine that is out of range; nothing was installed or changed."""


class UnsupportedScheduleError(MachineConfigurationError):
    """A schedule that does not exist; the message lists the legal ones."""


class MachineInstalledError(FakesError, RuntimeError):
    """A machine is installed already, or this process has had another persona; a process can have one persona only."""


class MachineNotInstalledError(FakesError, RuntimeError):
    """A simulated device is used while no machine is installed."""


class UnsupportedTorchError(FakesError, RuntimeError):
    """This PyTorch lacks what a simulated device is made of."""


@dataclass(frozen=True)
class AccessReport:
    """One side of a race. `kind` is "read", "write" or "free"; `launch` the operator's or kernel's name and `number` its place in the
    order of issue; `stream` the stream; `site` the line of the user's code that issued it, or "unknown"; `nbytes` the bytes
    touched."""

    kind: str
    launch: str
    number: int
    stream: str
    site: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.kind} of {self.nbytes} bytes by {self.launch} (launch {self.number}) on {self.stream}, at {self.site}"


class RaceError(FakesError, RuntimeError):
    """Two accesses to the same memory that nothing orders. `first` was issued before `second`; `missing` says which edge there is
    not."""

    def __init__(self, message: str, first: AccessReport, second: AccessReport, missing: str) -> None:
        super().__init__(message)
        self.first = first
        self.second = second
        self.missing = missing

    def copy(self) -> RaceError:
        """The same error, not raised yet."""
        return type(self)(str(self), self.first, self.second, self.missing)


class MissingRecordStreamError(RaceError):
    """Memory whose last tensor is gone while another stream may still use it: `record_stream` is missing, or a wait of the stream
    that allocated it. `second` is the free."""


class UnfinishedExplorationError(FakesError, RuntimeError):
    """A program has more orders than `explore` was allowed to run."""
