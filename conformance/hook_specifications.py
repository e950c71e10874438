"""The hooks that this plugin adds to pytest. Not for: implementations."""

from __future__ import annotations

import pytest

from conformance.recording import RunResults


@pytest.hookspec
def pytest_conformance_results(config: pytest.Config, results: RunResults) -> None:
    """Called once, in the controlling process, when a run has ended; also when it was interrupted."""
