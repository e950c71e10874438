"""Simulated devices that run on a CPU: real PyTorch devices for code that assumes an accelerator.

For: `install`, and what it returns. Not for: the suite (`conformance`) or the adapters under test (`harness`).
"""

from fakes.installation import install, installed_machine
from fakes.machine import Machine

__all__ = ["Machine", "install", "installed_machine"]
