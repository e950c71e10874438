"""The adapter. Imported when the backend is asked for, not before."""

import torch

from harness.accelerator.generic import GenericAccelerator
from harness.accelerator.registration import Availability


def is_available() -> Availability:
    """The probe: opens no context, imports nothing."""
    return Availability(torch.cpu.is_available(), "the CPU is always there")


class ExampleAccelerator(GenericAccelerator):
    """The CPU under a name of our own."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.name = "example"
