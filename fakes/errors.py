"""Typed errors of the simulated machine.

For: what `fakes` raises about its own use. Not for: what a simulated device raises as hardware does; those are PyTorch's own
(`torch.OutOfMemoryError`, RuntimeError, TypeError) with PyTorch's wording.

    FakesError
    ├── UnknownPersonaError (ValueError)         a persona that nobody described
    ├── MachineConfigurationError (ValueError)   devices, memory, seed or another setting out of range
    │   └── UnsupportedScheduleError             a schedule that does not exist (yet)
    ├── MachineInstalledError (RuntimeError)     a machine is installed already, or the process is another persona's
    ├── MachineNotInstalledError (RuntimeError)  a machine is used after it was uninstalled
    └── UnsupportedTorchError (RuntimeError)     a PyTorch that cannot carry a simulated device
"""

from __future__ import annotations


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
