"""Inside a child process: find the program, hand it the backend, return its answer.

For: both kinds of children, forked and fresh. Not for: starting them (`children.py`). Importing this module imports neither torch nor
the reference, since some programs check what those imports do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.accelerator.contract import Accelerator


class ChildBackend:
    """Makes the accelerator under test when it is called; `apply_fault` puts the chosen fault in force without one."""

    def __init__(self, choice: dict[str, Any]) -> None:
        self._choice = choice
        self._prepared: Any = None

    def __call__(self) -> Accelerator:
        """A fresh adapter; the simulated machine is installed and the fault applied at the first call."""
        from conformance.backends import BackendChoice, prepare_backend

        if self._prepared is None:
            self._prepared = prepare_backend(BackendChoice(**self._choice))
        accelerator: Accelerator = self._prepared.new_accelerator()
        return accelerator

    def apply_fault(self) -> None:
        """Apply the fault of the run, if any, to what is imported so far or will be; for programs about the library alone."""
        from conformance.backends import apply_fault

        if self._prepared is None:
            apply_fault(self._choice["fault"])


def run(request: dict[str, Any]) -> Any:
    """Run `module:function` with the backend and its arguments; the answer must be JSON."""
    module, _, function = request["program"].partition(":")
    program = getattr(importlib.import_module(module), function)
    return program(ChildBackend(request["backend"]), **request["arguments"])
