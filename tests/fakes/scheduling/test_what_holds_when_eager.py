"""What holds of a simulated device when everything runs at once holds when it is deferred."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fakes
from tests.fakes.test_autocast import *  # noqa: F403
from tests.fakes.test_devices import *  # noqa: F403
from tests.fakes.test_operators import *  # noqa: F403
from tests.fakes.test_pinned_memory import *  # noqa: F403
from tests.fakes.test_random_numbers import *  # noqa: F403
from tests.fakes.test_serialization import *  # noqa: F403
from tests.fakes.test_streams_and_events import *  # noqa: F403
from tests.fakes.test_tensors import *  # noqa: F403
from tests.fakes.test_training import *  # noqa: F403


@pytest.fixture
def simulated_machine(scheduled_machine: fakes.Machine) -> Iterator[fakes.Machine]:
    """The machine of the imported tests."""
    yield scheduled_machine
