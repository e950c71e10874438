"""The visible-devices variables as they were when an adapter first used its runtime.

For: DEV-6. A driver reads its variables once; a later change of `os.environ` has no effect on it, so answering with the new
values would apply the change by half. Not for: what the values mean (`visible_devices.py`)."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping, Sequence

from harness.errors import VisibleDevicesChangedWarning


class EnvironmentAtFirstUse:
    """Follows `os.environ` until `freeze`, and answers with the values of that moment from then on."""

    def __init__(self, variables: Sequence[str]) -> None:
        self._variables = tuple(variables)
        self._frozen: dict[str, str] | None = None
        self._reported: set[tuple[str, str | None]] = set()
        self._lock = threading.Lock()

    @property
    def is_frozen(self) -> bool:
        """Whether the runtime has been used."""
        return self._frozen is not None

    def freeze(self) -> None:
        """Remember the variables as they are now; the first call counts."""
        with self._lock:
            if self._frozen is None:
                self._frozen = self._read()

    def in_force(self) -> Mapping[str, str] | None:
        """The variables that the runtime has read, unset ones left out; None before `freeze`, when `os.environ` is live."""
        if self._frozen is not None:
            self.report_changes()
        return self._frozen

    def report_changes(self) -> None:
        """Warn of each variable whose value differs from the one in force, once for each new value.

        Warns:
            VisibleDevicesChangedWarning: names the variable, both values and the remedy.
        """
        frozen = self._frozen
        if frozen is None:
            return
        for variable in self._variables:
            now, then = os.environ.get(variable), frozen.get(variable)
            if now == then:
                continue
            with self._lock:
                is_new = (variable, now) not in self._reported
                self._reported.add((variable, now))
            if is_new:
                warnings.warn(
                    f"{variable} is now {_shown(now)}, but the device runtime has read it as {_shown(then)} and keeps to that; "
                    f"set {variable} before the first use of the device, or start a new process",
                    VisibleDevicesChangedWarning,
                    stacklevel=4,
                )

    def _read(self) -> dict[str, str]:
        return {variable: os.environ[variable] for variable in self._variables if variable in os.environ}


def _shown(value: str | None) -> str:
    return "unset" if value is None else repr(value)
