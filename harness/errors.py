"""Typed errors of the reference implementation.

For: everything that `harness` raises on purpose. Each class also inherits the built-in exception that the contract or PyTorch's own
convention names, so that callers may catch either. Not for: errors of the suite, the fakes or the reports, which keep their own.

    HarnessError
    ├── DeviceError (ValueError, RuntimeError)            a device that this backend cannot name or does not have
    ├── VisibleDevicesError (ValueError, RuntimeError)    a device id or a visible-devices variable that cannot be resolved
    │   └── DeviceIdTypeError (TypeError)                 an id of a type that no driver uses
    ├── UnknownCapabilityError (ValueError)               a capability name outside the closed set
    ├── UnsupportedCapabilityError (NotImplementedError)  an operation behind a capability that the backend denies
    ├── InvalidAcceleratorNameError (ValueError)          a name that cannot be registered
    ├── InvalidRegistrationError (ValueError, TypeError)  a registration whose parts cannot be used
    ├── DuplicateAcceleratorError (ValueError)            a name that is registered already
    ├── UnknownAcceleratorError (ValueError)              a name that nobody registered
    ├── IncompleteAcceleratorError (TypeError)            a backend that lacks part of the interface
    ├── AcceleratorUnavailableError (RuntimeError)        a requested backend that cannot be used
    ├── NoAcceleratorError (RuntimeError)                 automatic selection found nothing usable
    ├── ReentrantSelectionError (RuntimeError)            a selection asked for from inside a selection
    ├── VendorPatchError (RuntimeError)                   a vendor's bootstrap module failed
    ├── RoutedExpertsError (ValueError)                   routed experts, or a parallel layout, that cannot be aligned
    ├── RoutingReplayError (RuntimeError)                 a routing replay that is empty, over-read or not consumed exactly once
    ├── BackendSpecError (ValueError)                     a process-group backend string that nobody can read one way
    │   └── BackendSpecTypeError (TypeError)              a process-group backend that is not a string
    └── ProcessGroupError (RuntimeError)                  process groups that cannot be registered, destroyed or rebuilt
        └── ProcessGroupDestroyedError                    communication on a group that was destroyed and not rebuilt

    VisibleDevicesChangedWarning (RuntimeWarning)         a visible-devices variable changed after the runtime had read it
"""

from __future__ import annotations


class HarnessError(Exception):
    """Base of every error that this package raises on purpose."""


class DeviceError(HarnessError, ValueError, RuntimeError):
    """A device of another type, a malformed device or an index outside `range(device_count)` (DEV-1, DEV-2)."""


class VisibleDevicesError(HarnessError, ValueError, RuntimeError):
    """A device id or visible-devices variable that cannot be resolved (VIS-3, VIS-5 to VIS-8, VIS-16)."""


class DeviceIdTypeError(VisibleDevicesError, TypeError):
    """An id whose type no driver uses: a bool, None, a container (VIS-6)."""


class UnknownCapabilityError(HarnessError, ValueError):
    """A capability name outside the closed set (CAP-1)."""


class UnsupportedCapabilityError(HarnessError, NotImplementedError):
    """An operation behind a capability that the backend denies (STR-13, CAP-3)."""


class InvalidAcceleratorNameError(HarnessError, ValueError):
    """A name that cannot be registered: empty, `auto`, `none` or not a string (REG-1)."""


class InvalidRegistrationError(HarnessError, ValueError, TypeError):
    """A registration whose factory, probe, priority or names cannot be used."""


class DuplicateAcceleratorError(HarnessError, ValueError):
    """A name that is registered already, without `replace=True` (REG-2)."""


class UnknownAcceleratorError(HarnessError, ValueError):
    """A name that nobody registered (SEL-3)."""


class IncompleteAcceleratorError(HarnessError, TypeError):
    """A backend that lacks part of the interface; `missing` lists every lack (SEL-13).

    `missing` is a sorted tuple of attribute names.
    """

    def __init__(self, message: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class AcceleratorUnavailableError(HarnessError, RuntimeError):
    """A requested backend that cannot be used on this host (SEL-2, SEL-12)."""


class NoAcceleratorError(HarnessError, RuntimeError):
    """Automatic selection found nothing usable (SEL-4)."""


class ReentrantSelectionError(HarnessError, RuntimeError):
    """A factory, probe or bootstrap asked for the accelerator that is being selected through it (SEL-8)."""


class VendorPatchError(HarnessError, RuntimeError):
    """A vendor's bootstrap module failed (SEL-7)."""


class RoutedExpertsError(HarnessError, ValueError):
    """Routed experts, token ids or a parallel layout that do not fit together (RXA-7, RXA-9, RXR-2)."""


class RoutingReplayError(HarnessError, RuntimeError):
    """A replay that is empty, over-read, not consumed exactly once, or of another shape than the scores (RXR-3, RXR-5)."""


class BackendSpecError(HarnessError, ValueError):
    """A process-group backend string that is malformed or names a device that nobody knows (PGN-6)."""


class BackendSpecTypeError(BackendSpecError, TypeError):
    """A process-group backend that is not a string (PGN-6)."""


class ProcessGroupError(HarnessError, RuntimeError):
    """Process groups that cannot be registered, destroyed or rebuilt; the message names the step and the ranks (PGL-9)."""


class ProcessGroupDestroyedError(ProcessGroupError):
    """Communication on a group that was destroyed and not rebuilt (PGL-1)."""


class VisibleDevicesChangedWarning(RuntimeWarning):
    """A visible-devices variable changed after the runtime had read it; the change has no effect (DEV-6)."""
