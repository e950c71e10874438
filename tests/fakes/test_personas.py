"""Personas are data: a new one needs no code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fakes.personas import FEATURES, PERSONAS

REPOSITORY = Path(__file__).resolve().parents[2]

PROGRAM = """
import dataclasses, sys
import torch
import fakes
from fakes import installation, personas
features = frozenset(filter(None, sys.argv[1].split(",")))
persona = dataclasses.replace(
    personas.MUSA, name="minimal", device_type="minimal", display_name="Minimal", grammar=None, management_modules=(), features=features
)
installation.PERSONAS = {**personas.PERSONAS, "minimal": persona}
machine = fakes.install("minimal", devices=2)
namespace = torch.minimal
layer = torch.nn.Linear(3, 3).to("minimal:1")
layer(torch.ones(2, 3, device="minimal:1")).sum().backward()
assert layer.weight.grad.cpu().shape == (3, 3)
assert namespace.device_count() == 2 and torch.accelerator.current_accelerator().type == "minimal"
for feature, names in {
    "streams": ("Stream", "stream", "current_stream"),
    "events": ("Event",),
    "rng": ("manual_seed", "get_rng_state"),
    "memory": ("memory_allocated", "mem_get_info", "memory"),
    "properties": ("get_device_properties", "get_device_name"),
    "amp": ("amp", "get_amp_supported_dtype"),
}.items():
    for name in names:
        assert hasattr(namespace, name) == (feature in features), name
for feature, use in {
    "streams": lambda: (torch.accelerator.current_stream(), torch.Stream(device="minimal")),
    "events": lambda: torch.Event("minimal"),
    "rng": lambda: torch.Generator(device="minimal"),
    "memory": lambda: torch.accelerator.memory_stats(0),
    "pinned_memory": lambda: torch.ones(1).pin_memory(),
}.items():
    try:
        use()
        works = True
    except (NotImplementedError, RuntimeError):
        works = False
    assert works == (feature in features), feature
assert isinstance(torch.Generator(), torch.Generator)
machine.uninstall()
try:
    fakes.install("musa")
except fakes.errors.MachineInstalledError as error:
    print(error)
"""


@pytest.mark.parametrize("features", ["", "streams,events", ",".join(sorted(FEATURES))])
def test_a_persona_has_the_features_it_names(features: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, features], capture_output=True, text=True, timeout=200, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    assert "already has the persona 'minimal'" in done.stdout


def test_every_persona_names_known_features() -> None:
    for name, persona in PERSONAS.items():
        assert persona.name == name
        assert persona.features <= FEATURES
        assert set(persona.autocast_dtypes) <= persona.dtypes
