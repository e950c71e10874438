"""The fixture that these tests share with users of the package."""

from fakes.pytest_plugin import pytest_configure, simulated_machine

__all__ = ["pytest_configure", "simulated_machine"]
