"""The hand-written namespace that several tests stand on."""

from __future__ import annotations

import pytest
import torch
from stub_namespace import DEVICE_TYPE, StubAccelerator, StubNamespace


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> StubNamespace:
    stub = StubNamespace()
    monkeypatch.setattr(torch, DEVICE_TYPE, stub, raising=False)
    monkeypatch.delenv("MUSA_VISIBLE_DEVICES", raising=False)
    return stub


@pytest.fixture
def accelerator(namespace: StubNamespace) -> StubAccelerator:
    return StubAccelerator()
