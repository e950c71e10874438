"""Several hundred alterations of honest packages: each is rejected for the right reason, and the honest ones are accepted."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import alterations_of_files as files_of
import alterations_of_reports as reports_of
import pytest
from alterations import CONTRACT, FAILING, HONEST, KEY, Alteration, Files, consistent
from jsonschema import Draft202012Validator
from report_factory import make_report

from reports import verification
from reports.derived_facts import SUITE, checks_of_suite
from reports.facts import folder_digest
from reports.levels import finished
from reports.model import Report
from reports.rendering import REPORT, SIGNATURE, render_all
from reports.schema import schema_document
from reports.strict_json import parse
from reports.verification.examining import SIGNED, UNSIGNED, verify_files
from reports.verification.findings import State, Verdict, Verification

_GROUPS = (
    reports_of.of_outcomes,
    reports_of.of_clauses,
    reports_of.of_checks,
    reports_of.of_numbers,
    reports_of.of_status,
    reports_of.of_exceptions,
    files_of.of_rendered_files,
    files_of.of_digests,
    files_of.of_signatures,
    files_of.of_form,
    files_of.of_json,
)
ALTERATIONS = [alteration for group in _GROUPS for alteration in group()]
_VALIDATOR = Draft202012Validator(schema_document())


def _verify(files: Files, *, keyed: bool = False) -> Verification:
    return verify_files(files, "out", KEY.public_key() if keyed else None, CONTRACT)


def test_there_are_at_least_five_hundred_and_each_is_another() -> None:
    assert len(ALTERATIONS) >= 500
    assert len({alteration.name for alteration in ALTERATIONS}) == len(ALTERATIONS)


def test_every_reason_that_verify_knows_is_given_by_an_alteration() -> None:
    """A step that no alteration fails would be one that cannot fail."""
    sources = [path.read_text() for path in (Path(verification.__file__).parent).glob("*.py")]
    known = {reason for source in sources for reason in re.findall(r'Finding(?:\.about)?\(\s*"([a-z-]+)"', source)}
    known |= {"status", "caps", "levels", "certified", "should", "headline"}  # named in a table
    elsewhere = {"replay", "check-list", "schema"}  # test_replay.py, and below
    assert known - elsewhere == {reason for alteration in ALTERATIONS for reason in alteration.reasons} - _OF_READING


_OF_READING = frozenset(
    {
        "json-duplicate-key",
        "json-number",
        "json-syntax",
        "json-encoding",
        "json-depth",
        "json-string",
        "report-format",
        "report-missing",
    }
)


@pytest.mark.parametrize("files", HONEST.values(), ids=HONEST)
@pytest.mark.parametrize("keyed", [False, True])
def test_an_honest_package_is_accepted(files: Files, keyed: bool) -> None:
    verification = _verify(files, keyed=keyed)
    assert verification.findings == ()
    assert verification.verdict is Verdict.HOLDS
    not_checked = [step.id for step in verification.steps if step.state is State.NOT_CHECKED]
    assert not_checked == ["suite", *([] if keyed else ["signature"])]  # the factory's digests are of no suite
    assert verification.says[-1] == (SIGNED if keyed else UNSIGNED)


@pytest.mark.parametrize("alteration", ALTERATIONS, ids=lambda alteration: alteration.name)
def test_an_altered_package_is_rejected_for_the_right_reason(alteration: Alteration) -> None:
    verification = _verify(alteration.make(), keyed=alteration.keyed)
    found = verification.reasons
    assert found >= alteration.reasons if alteration.others else found == alteration.reasons, verification.findings[:5]
    assert verification.verdict is (Verdict.UNREADABLE if alteration.unreadable else Verdict.FAILS)
    assert verification.says == ()
    assert all(f"{finding.where} {finding.message}".isprintable() for finding in verification.findings)


@pytest.mark.parametrize("edit", files_of.FORGERIES.values(), ids=files_of.FORGERIES)
def test_a_consistent_forgery_is_accepted_with_a_word_about_it(edit: object) -> None:
    """What nothing but a signature or a replay can show; `of_signatures` has that the signature does."""
    verification = _verify(consistent(FAILING, edit))
    assert verification.verdict is Verdict.HOLDS
    assert UNSIGNED in verification.says


@cache
def _schema_alterations() -> tuple[Alteration, ...]:
    return tuple(files_of.of_schema())


def test_what_breaks_the_published_schema_is_rejected_as_that() -> None:
    """The published schema, through jsonschema, and the model that verify uses agree at every place."""
    broken = 0
    for alteration in _schema_alterations():
        files = alteration.make()
        is_broken = not _VALIDATOR.is_valid(parse(files[REPORT], REPORT))
        verification = _verify(files)
        if verification.reasons & {"report-format"}:
            assert verification.verdict is Verdict.UNREADABLE
        elif is_broken:
            broken += 1
            # Null for a field that may be left out: the model reads it as left out, and the form gives it away.
            assert verification.reasons == {"schema"} or (
                "made null" in alteration.name and "report-form" in verification.reasons
            ), alteration.name
        else:
            assert "schema" not in verification.reasons, alteration.name
        assert verification.verdict is not Verdict.HOLDS, alteration.name
    assert broken > 300


def test_the_signature_is_the_only_file_that_may_lack() -> None:
    assert _verify({name: data for name, data in HONEST["hardware"].items() if name != SIGNATURE}).verdict is Verdict.HOLDS


def _of_this_suite(without: str = "") -> Report:
    """A report with the checks of the suite that is here, each once, but for one."""
    base = make_report()
    names = {name: ids for name, ids in checks_of_suite().items() if name != without}
    checks = tuple(base.checks[0].model_copy(update={"name": name, "outcome": "pass"}) for name in sorted(names))
    checks_of = {clause.id: tuple(sorted(name for name, ids in names.items() if clause.id in ids)) for clause in base.clauses}
    clauses = tuple(clause.model_copy(update={"checks": checks_of[clause.id]}) for clause in base.clauses)
    changes = {
        "checks": checks,
        "clauses": clauses,
        "run": base.run.model_copy(update={"checks": len(checks), "reported": len(checks)}),
        "suite": base.suite.model_copy(update={"digests": {**base.suite.digests, "conformance": folder_digest(SUITE)}}),
    }
    return finished(base.model_copy(update=changes))


def test_a_check_that_the_suite_has_cannot_be_left_out() -> None:
    """However consistent the rest is, where the verifier has the same suite."""
    whole = verify_files(render_all(_of_this_suite().to_bytes()), "out")
    assert whole.verdict is Verdict.HOLDS, whole.findings[:3]
    left_out = next(name for name, ids in checks_of_suite().items() if "DEV-4" in ids)
    lacking = verify_files(render_all(_of_this_suite(left_out).to_bytes()), "out")
    assert lacking.reasons == {"check-list"}
    assert left_out in lacking.findings[0].where
