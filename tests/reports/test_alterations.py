"""Several hundred alterations of honest packages: each is rejected for the right reason, and the honest ones are accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

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
from reports.model import CheckResult, Declared, Report
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
    reports_of.of_facts,
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
    elsewhere = {"replay", "schema", "check-list", "check-tier", "check-examples", "run-examples"}  # test_replay.py, and below
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
    other_renderer = files is HONEST["by another renderer"]
    # The factory's digests are of no suite.
    assert not_checked == ["suite", *(["rendered"] if other_renderer else []), *([] if keyed else ["signature"])]
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


def _of_this_suite() -> dict[str, Any]:
    """An honest report of a run with the suite that is here."""
    base = make_report()
    denied = {fact.name for fact in base.capabilities if not fact.supported}
    checks = []
    for name, declared in sorted(checks_of_suite().items()):
        lacking = [clause.capability for clause in base.clauses if clause.id in declared.clauses and clause.capability in denied]
        checks.append(
            CheckResult(
                name=name,
                tier=declared.tier,
                outcome="unsupported" if lacking else "pass",
                seconds=0.1,
                examples_run=max(1, round(1000 * declared.share)) if declared.is_property and not lacking else 0,
                examples_discarded=0,
                said="tried, and it raised" if lacking else None,
            )
        )
    document: dict[str, Any] = json.loads(base.to_bytes())
    document["checks"] = [check.model_dump(exclude_none=True) for check in checks]
    for clause in document["clauses"]:
        clause["checks"] = sorted(name for name, declared in checks_of_suite().items() if clause["id"] in declared.clauses)
    document["run"]["checks"] = document["run"]["reported"] = len(checks)
    document["suite"]["digests"]["conformance"] = folder_digest(SUITE)
    return document


def _verify_document(document: dict[str, Any]) -> Verification:
    return verify_files(render_all(finished(Report.from_bytes(json.dumps(document).encode())).to_bytes()), "out")


def _passed(document: dict[str, Any], *, is_property: bool) -> list[dict[str, Any]]:
    declared = checks_of_suite()
    passed = [check for check in document["checks"] if check["outcome"] == "pass"]
    return [check for check in passed if declared[check["name"]].is_property is is_property]


def _left_out(document: dict[str, Any]) -> None:
    name = document["checks"].pop(0)["name"]
    for clause in document["clauses"]:
        clause["checks"] = [other for other in clause["checks"] if other != name]
    document["run"]["checks"] = document["run"]["reported"] = len(document["checks"])


def _as_if_quick(document: dict[str, Any]) -> None:
    for check in _passed(document, is_property=True):
        check["examples_run"] = max(1, check["examples_run"] // 100)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (_left_out, "check-list"),
        (lambda document: document["checks"][0].update(tier="multi-node"), "check-tier"),
        (lambda document: _passed(document, is_property=False)[0].update(examples_run=1000), "check-examples"),
        (lambda document: _passed(document, is_property=True)[0].update(examples_run=0), "check-examples"),
        (_as_if_quick, "run-examples"),
    ],
    ids=["a check left out", "a tier", "examples invented", "no examples", "effort raised"],
)
def test_what_the_verifiers_own_suite_gives_away(edit: Callable[[dict[str, Any]], object], reason: str) -> None:
    """However consistent the rest is, where the verifier has the same suite."""
    document = _of_this_suite()
    assert _verify_document(document).findings == ()
    edit(document)
    assert _verify_document(document).reasons == {reason}


@pytest.mark.parametrize("shortage", ["complete", "deselected", "other suite"])
def test_few_examples_are_no_contradiction_where_few_checks_ran(shortage: str) -> None:
    document = _of_this_suite()
    _as_if_quick(document)
    if shortage == "complete":
        document["run"]["complete"] = False
    elif shortage == "deselected":
        check = document["checks"][0]
        check.update(outcome="not-run", said="left out", examples_run=0)
        document["run"].update(deselected=[check["name"]], reported=document["run"]["reported"] - 1)
    else:
        document["suite"]["digests"]["conformance"] = "0" * 64
    assert _verify_document(document).findings == ()


def test_options_that_could_change_a_run_hold_its_status_back_and_are_named() -> None:
    """Where that is said, nothing is wrong with the package."""
    report = make_report()
    line = (*report.run.argv, "-x", "-p", "my_plugin", "-k", "DEV", "-q")
    capped = finished(report.model_copy(update={"run": report.run.model_copy(update={"argv": line})}))
    assert capped.verdict.status == "preview"
    assert "options could have changed what ran (-x, -p my_plugin, -k DEV)" in capped.verdict.headline
    verification = verify_files(render_all(capped.to_bytes()), "out")
    assert verification.findings == ()
    assert any("-x could have changed what ran" in note for step in verification.steps for note in step.notes)


@pytest.mark.parametrize(
    ("vendor", "alphabets"),
    [
        ("Example", ""),
        ("\u0415xample", "CYRILLIC and LATIN"),
        ("Ex\u0430mpl\u03b5", "CYRILLIC and GREEK and LATIN"),
        ("\u6469\u5c14 MT", ""),
    ],
)
def test_a_name_in_letters_that_look_like_others_is_pointed_out(vendor: str, alphabets: str) -> None:
    report = make_report()
    line = tuple(f"--vendor={vendor}" if word.startswith("--vendor") else word for word in report.run.argv)
    changes = {"declared": Declared(vendor=vendor, product=""), "run": report.run.model_copy(update={"argv": line[:-1]})}
    verification = verify_files(render_all(finished(report.model_copy(update=changes)).to_bytes()), "out")
    assert verification.findings == ()
    notes = " ".join(note for step in verification.steps for note in step.notes)
    assert f"vendor '{vendor}'" in notes
    assert ("look alike" in notes) is bool(alphabets)
    assert alphabets in notes
