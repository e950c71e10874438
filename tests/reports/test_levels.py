"""What a run is worth: each rule of docs/levels.md, and that nothing else counts."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from report_factory import DENIED, make_failing_report, make_known_failure, make_report

from conformance.clauses import CLAUSES, Level, Subject
from reports.levels import finished, judge
from reports.model import LevelResult, OutcomeName, Report

OUTCOMES: tuple[OutcomeName, ...] = get_args(OutcomeName)


def level(report: Report, name: str) -> LevelResult:
    return next(found for found in report.verdict.levels if found.name == name)


def with_part(report: Report, part: str, **changes: Any) -> Report:
    changed = getattr(report, part).model_copy(update=changes)
    return finished(report.model_copy(update={part: changed}))


def test_a_whole_run_on_hardware_certifies_what_it_attains() -> None:
    verdict = make_report().verdict
    assert verdict.status == "hardware"
    assert verdict.caps == ()
    assert verdict.certified == ("core", "streams", "memory", "distributed", "full")
    assert verdict.headline == "HARDWARE: musa, contract 2026.11: certifies core, streams, memory, distributed, full."


@pytest.mark.parametrize("outcome", [outcome for outcome in OUTCOMES if outcome != "pass"])
def test_a_must_that_did_not_pass_stands_in_the_way(outcome: OutcomeName) -> None:
    report = make_report(outcomes={"DEV-1": outcome})
    for name in ("core", "full"):
        assert level(report, name).state == "not-attained"
        assert level(report, name).missing == ("DEV-1",)
    assert level(report, "streams").state == "attained"
    assert report.verdict.certified == ("streams", "memory", "distributed")


def test_unsupported_counts_only_with_a_denied_capability_and_evidence() -> None:
    report = make_report()
    assert CLAUSES["IPC-1"].capability in DENIED
    assert level(report, "memory").unsupported == ("IPC-1",)
    for facts in (
        {"supported": True},
        {"evidence": " "},
    ):
        capabilities = tuple(
            fact.model_copy(update=facts) if fact.name == CLAUSES["IPC-1"].capability else fact for fact in report.capabilities
        )
        doubtful = finished(report.model_copy(update={"capabilities": capabilities}))
        assert level(doubtful, "memory").missing == ("IPC-1",)
    none = finished(report.model_copy(update={"capabilities": ()}))
    assert level(none, "memory").state == "not-attained"


def test_a_level_of_which_everything_is_unsupported_is_not_attained() -> None:
    report = make_report(outcomes={clause.id: "unsupported" for clause in CLAUSES.values() if clause.area in ("MEM", "IPC")})
    clauses = tuple(
        clause.model_copy(update={"capability": "ipc"}) if clause.id.startswith("MEM") else clause for clause in report.clauses
    )
    assert level(finished(report.model_copy(update={"clauses": clauses})), "memory").state == "unsupported"


def test_a_level_counts_the_supplied_subjects_only() -> None:
    report = make_report(outcomes={"RXA-1": "fail", "PGN-1": "fail", "SEL-1": "fail"})
    assert {CLAUSES[name].subject for name in ("RXA-1", "PGN-1", "SEL-1")} == {Subject.ALIGNER, Subject.NORMALIZER, Subject.LIBRARY}
    assert level(report, "full").state == "attained"
    assert level(report, "routed-experts").state == "not-supplied"
    supplied = with_part(report, "backend", supplied=("backend", "transport", "aligner"))
    assert level(supplied, "routed-experts").missing == ("RXA-1",)
    assert level(supplied, "full").missing == ("RXA-1",)


def test_shoulds_are_listed_and_stand_in_no_way() -> None:
    should = next(c.id for c in CLAUSES.values() if c.level is Level.SHOULD and c.subject is Subject.BACKEND)
    report = make_report(outcomes={should: "fail"})
    assert report.verdict.should_not_met == (should,)
    assert level(report, "full").state == "attained"


@pytest.mark.parametrize(
    ("part", "changes", "cap", "status"),
    [
        ("backend", {"simulated": True}, "simulated", "simulated"),
        ("run", {"fault": "dev-x"}, "fault", "simulated"),
        ("run", {"complete": False}, "interrupted", "preview"),
        ("run", {"examples": 999}, "effort", "preview"),
        ("run", {"deselected": ("a",)}, "deselected", "preview"),
        ("suite", {"tree": "dirty", "changed": ("a.py",)}, "dirty-tree", "preview"),
        ("suite", {"tree": "unknown"}, "unknown-tree", "preview"),
        ("backend", {"no_device_reason": "none"}, "no-device", "preview"),
        ("host", {"devices": ()}, "no-device", "preview"),
        ("run", {"argv": ("--backend=musa", "-x")}, "options", "preview"),
        ("run", {"argv": ("--backend=musa", "-p", "my_plugin")}, "options", "preview"),
    ],
)
def test_each_cap_alone_keeps_a_run_from_certifying(part: str, changes: dict[str, Any], cap: str, status: str) -> None:
    verdict = with_part(make_report(), part, **changes).verdict
    assert [found.id for found in verdict.caps] == [cap]
    assert verdict.status == status
    assert verdict.certified == ()
    assert verdict.caps[0].text in verdict.headline
    assert verdict.headline.startswith(status.upper())
    assert "certifies nothing" in verdict.headline


def test_a_tier_of_which_nothing_ran_is_missing() -> None:
    outcomes: dict[str, OutcomeName] = {c.id: "not-run" for c in CLAUSES.values() if c.tiers[0].value == "multi-rank"}
    verdict = make_report(outcomes=outcomes).verdict
    assert [(cap.id, cap.text) for cap in verdict.caps] == [("missing-tier", "the multi-rank tier did not run")]


def test_known_failures_and_waivers_are_no_passes() -> None:
    for kind, outcome in (("known-failure", "known-failure"), ("waiver", "waived")):
        entry = make_known_failure("DEV-4").model_copy(update={"kind": kind})
        report = make_report(outcomes={"DEV-4": "fail"}, known_failures=(entry,))
        assert report.counts[outcome] == 1
        assert "fail" not in report.counts
        assert level(report, "core").missing == ("DEV-4",)


def test_a_known_failure_hides_nothing_but_failures() -> None:
    for outcome in ("not-run", "harness-error", "not-checkable", "unsupported"):
        report = make_report(outcomes={"DEV-4": outcome}, known_failures=(make_known_failure("DEV-4"),))
        assert report.counts[outcome] >= 1
        assert "known-failure" not in report.counts


def test_a_check_that_needs_more_than_its_clause_does_not_count_where_it_could_not_run() -> None:
    report = make_report()
    more = report.checks[0].model_copy(update={"name": "more", "tier": "multi-node", "outcome": "not-run"})
    clauses = tuple(
        clause.model_copy(update={"checks": (*clause.checks, "more")}) if clause.id == "DEV-1" else clause
        for clause in report.clauses
    )
    assert finished(report.model_copy(update={"clauses": clauses, "checks": (*report.checks, more)})).counts == report.counts
    failed = more.model_copy(update={"outcome": "fail"})
    assert finished(report.model_copy(update={"clauses": clauses, "checks": (*report.checks, failed)})).counts["fail"] == 1


def test_the_verdict_in_the_document_is_not_looked_at() -> None:
    report = make_failing_report()
    flattered = report.model_copy(update={"verdict": make_report().verdict})
    assert judge(flattered) == report.verdict
