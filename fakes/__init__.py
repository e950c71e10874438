"""Simulated devices that run on a CPU: real PyTorch devices for code that assumes an accelerator.

For: `install` and what it returns, and `explore`. Not for: the suite (`conformance`) or the adapters under test (`harness`).
"""

from fakes.installation import install, installed_machine
from fakes.machine import Machine
from fakes.scheduling.exploration import explore

__all__ = ["Machine", "explore", "install", "installed_machine"]
