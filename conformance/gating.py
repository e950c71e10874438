"""What decides, before a check runs, that it cannot give a verdict here.

For: tiers, devices and capabilities, from the clause data. Not for: prerequisites that only a check itself can find out.
"""

from __future__ import annotations

from conformance.backend_under_test import BackendUnderTest
from conformance.check_endings import CheckEnded, NotRun, Unsupported
from conformance.clauses import Clause, Tier
from conformance.ranks.plan import RankPlan


def verdict_before_running(
    clauses: tuple[Clause, ...], tier: Tier, *, backend: BackendUnderTest, limit: Tier, ranks: RankPlan
) -> CheckEnded | None:
    """The outcome of a check that cannot run here, or None where it can."""
    if tier.order > limit.order:
        return NotRun(f"left out by --tier={limit.value}")
    if tier is Tier.HOST:
        return None
    if backend.no_device_reason is not None:
        return NotRun(f"no device: {backend.no_device_reason}")
    if tier.order >= Tier.MULTI_RANK.order and ranks.what_is_missing(tier):
        return NotRun(ranks.what_is_missing(tier))
    if tier is Tier.MULTI_DEVICE and backend.device_count < 2:
        return NotRun(f"needs two devices in one process; {backend.name} has {backend.device_count}")
    return _denied(clauses, backend)


def _denied(clauses: tuple[Clause, ...], backend: BackendUnderTest) -> CheckEnded | None:
    """Unsupported, with evidence, where a clause's capability is denied."""
    for capability in sorted({clause.capability for clause in clauses if clause.capability}):
        supports = getattr(backend.accelerator, "supports", None)
        if supports is None:
            return None
        try:
            supported = supports(capability)
        except Exception:  # noqa: BLE001 - the check then meets the same error and reports it under its clause
            return None
        if not supported:
            return Unsupported(f"{capability}: {denial_evidence(backend, capability)}")
    return None


def denial_evidence(backend: BackendUnderTest, capability: str) -> str:
    """What shows that a denied capability is absent."""
    from conformance.capability_probes import probe_denial

    return probe_denial(backend.accelerator, capability).evidence
