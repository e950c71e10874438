"""The file of known failures and waivers, and what is wrong with its entries after a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_factory import make_known_failure, make_report

from reports.errors import KnownFailuresError
from reports.known_failures import problems, read_known_failures
from reports.levels import finished
from reports.model import ExceptionEntry

_GOOD = "clause='DEV-9'\ndevice='*'\nreason='r'\nurl='u'\nexpires=2999-01-01"


def test_entries_are_read_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(f"[[waiver]]\n{_GOOD}\n[[known-failure]]\n{_GOOD.replace('DEV-9', 'DEV-1')}\n")
    read = read_known_failures(path)
    assert [(entry.clause, entry.kind) for entry in read.entries] == [("DEV-1", "known-failure"), ("DEV-9", "waiver")]
    assert read.entries[0].expires == "2999-01-01"
    path.write_text("")
    assert read_known_failures(path).entries == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[known-failure]]", "is missing; fields are clause, device, expires, reason, url"),
        (f"[[waiver]]\n{_GOOD}\nmore=1", "'more' is not known"),
        ("[known-failure]\nclause = 'DEV-1'", "with two brackets"),
        ("known-failure = [1]", "expected a table"),
        ("[[expected]]", "'expected' is not known"),
        ("nonsense", "this is no TOML"),
        ("\udcff", "this is no TOML"),
        (f"[[waiver]]\n{_GOOD.replace('DEV-9', 'DEV-99')}", "no clause 'DEV-99' in the contract; the nearest id is DEV-9"),
        (f"[[waiver]]\n{_GOOD.replace('2999-01-01', repr('2999-01-01'))}", "must be a date without quotes"),
        (f"[[waiver]]\n{_GOOD.replace('2999-01-01', '2999-01-01T00:00:00Z')}", "must be a date without quotes"),
        (f"[[waiver]]\n{_GOOD.replace(repr('r'), repr(' '))}", "reason must be text that is not empty"),
        (f"[[waiver]]\n{_GOOD.replace(repr('r'), '7')}", "reason must be text that is not empty"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(KnownFailuresError, match=r"known\.toml") as refusal:
        read_known_failures(path)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("outcome", "entries", "problem"),
    [
        ("fail", (make_known_failure(),), None),
        ("flaky", (make_known_failure(),), None),
        ("pass", (make_known_failure(),), "the clause passed; remove the entry"),
        ("not-run", (make_known_failure(),), "it is not-run; the entry matches nothing"),
        ("unsupported", (make_known_failure(),), "it is unsupported; the entry matches nothing"),
        ("fail", (make_known_failure().model_copy(update={"device": "Other*"}),), "no device of this run is named like 'Other*'"),
        ("fail", (make_known_failure(),) * 2, "DEV-4: 2 entries match it; which one holds is ambiguous"),
        ("fail", (make_known_failure().model_copy(update={"expires": "2026-11-29"}),), "it expired on 2026-11-29"),
        ("fail", (make_known_failure().model_copy(update={"expires": "2026-11-30"}),), None),
    ],
)
def test_each_way_of_being_wrong_is_a_problem(outcome: str, entries: tuple[ExceptionEntry, ...], problem: str | None) -> None:
    found = problems(make_report(outcomes={"DEV-4": outcome}, known_failures=entries))
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


def test_an_entry_that_fits_some_devices_only_is_ambiguous() -> None:
    report = make_report(outcomes={"DEV-4": "fail"}, known_failures=(make_known_failure("DEV-4"),))
    other = report.host.devices[1].model_copy(update={"name": "Older Y50"})
    mixed = report.host.model_copy(update={"devices": (report.host.devices[0], other)})
    assert "which is ambiguous" in problems(report.model_copy(update={"host": mixed}))[0]
    everything = make_known_failure("DEV-4").model_copy(update={"device": "*"})
    of_all = make_report(outcomes={"DEV-4": "fail"}, known_failures=(everything,))
    assert problems(of_all.model_copy(update={"host": mixed})) == ()


def test_a_run_that_was_cut_short_blames_no_entry_for_what_it_did_not_reach() -> None:
    report = make_report(outcomes={"DEV-4": "not-run"}, known_failures=(make_known_failure("DEV-4"),))
    cut = finished(report.model_copy(update={"run": report.run.model_copy(update={"complete": False})}))
    assert problems(cut) == ()
