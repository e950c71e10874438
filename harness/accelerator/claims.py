"""Declarations of a backend: capabilities that it states instead of probing.

For: building the `declarations` of an adapter from plain names. Not for: answers that a probe can find out (`probing.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.accelerator.capabilities import Capability, CapabilityEvidence


def claims(
    source: str, *, has: tuple[Capability, ...] = (), lacks: tuple[Capability, ...] = ()
) -> Mapping[Capability, CapabilityEvidence]:
    """Declared answers; `source` says in words who makes the claim, and is their evidence."""
    evidence = f"a claim of {source}"
    return {
        **{capability: CapabilityEvidence(True, evidence) for capability in has},
        **{capability: CapabilityEvidence(False, evidence) for capability in lacks},
    }
