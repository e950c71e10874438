"""What tests of a world of one share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from harness.process_group import abandon_process_groups, torch_world


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """The test leaves no group behind, and no hook."""
    hook = sys.excepthook
    yield
    abandon_process_groups()
    sys.excepthook = hook
    assert not dist.is_initialized()
    assert torch_world.groups() == []
