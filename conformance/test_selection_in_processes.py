"""SEL: what needs a process of its own: importing, forking, vendors' patches, probes on pretended hosts."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.accelerator_access import method
from conformance.backend_under_test import BackendUnderTest
from conformance.capability_probes import probe_denial
from conformance.checking import clause, require, unsupported
from conformance.child_programs.answers import answer_of

_SELECTING = "conformance.child_programs.selection"
_RIVAL = "conformance_rival"


def _patch_scenario(backend: BackendUnderTest, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = answer_of(backend, "conformance.child_programs.vendor_patches:all_scenarios")[name]
    require("unexpected" not in answer, f"scenario {name}: {answer.get('unexpected')}")
    return answer


@clause("SEL-6")
@pytest.mark.parametrize(
    ("scenario", "selected", "journal"),
    [
        ("explicit_request", {"selected": "musa"}, ["patch", "probe", "factory"]),
        ("vendor_request", {"selected": "musa"}, ["patch", "probe", "factory"]),
        ("automatic", {"selected": "musa"}, ["probe", "patch", "factory"]),
        ("another_chosen", {"selected": "rival", "selected again": "rival"}, ["probe"]),
        ("twice", {"selected": "musa", "selected again": "musa"}, ["patch", "probe", "factory", "probe", "factory"]),
    ],
)
def test_patch_is_imported_once_at_its_time(
    backend: BackendUnderTest, scenario: str, selected: dict[str, str], journal: list[str]
) -> None:
    answer = _patch_scenario(backend, scenario)
    came = {key: answer.get(key) for key in selected}
    require(came == selected, f"scenario {scenario}: selected was {came}; due was {selected}")
    require(answer["journal"] == journal, f"scenario {scenario}: what happened was {answer['journal']}; due was {journal}")


@clause("SEL-6", "SEL-8")
def test_concurrent_first_calls_import_the_patch_once(backend: BackendUnderTest) -> None:
    answer = _patch_scenario(backend, "threads")
    require(answer["selected"] == ["musa"], f"the threads selected {answer['selected']}; due was musa")
    for entry in ("patch", "factory"):
        count = answer["journal"].count(entry)
        require(count == 1, f"many first calls at once: {entry} happened {count} times; due was once")


@clause("SEL-7")
def test_absent_patch_is_a_warning(backend: BackendUnderTest) -> None:
    answer = _patch_scenario(backend, "absent")
    require(answer["selected"] == "musa", f"without the patch module the selection is {answer['selected']}; due was musa")
    require(answer["warnings"], "the patch module is absent, and no warning names it")


@clause("SEL-7")
def test_missing_dependency_of_the_patch_is_named(backend: BackendUnderTest) -> None:
    answer = _patch_scenario(backend, "missing_dependency")
    text = str(answer["selected"])
    require(
        text.startswith("RuntimeError") and "surely_absent_dependency" in text, f"due was a RuntimeError that names it; came {text}"
    )


@clause("SEL-7")
def test_failure_of_the_patch_is_chained(backend: BackendUnderTest) -> None:
    answer = _patch_scenario(backend, "other_failure")
    text = str(answer["selected"])
    require(text.startswith("RuntimeError from OSError"), f"due was a RuntimeError with the OSError as its cause; came {text}")


@clause("SEL-9")
def test_failed_patch_leaves_nothing_and_is_imported_once_mended(backend: BackendUnderTest) -> None:
    answer = _patch_scenario(backend, "mended")
    require(str(answer["failed"]).startswith("RuntimeError"), f"the broken patch gave {answer['failed']}")
    for place in ("left in sys.path", "left in sys.modules"):
        require(answer[place] == [], f"a failed selection has {place}: {answer[place]}")
    require(answer["selected"] == "musa", f"after the patch was mended the selection is {answer['selected']}; due was musa")
    require(answer["journal"] == ["patch", "patch", "probe", "factory"], f"what happened was {answer['journal']}")


@clause("SEL-10")
def test_importing_initializes_no_runtime(backend: BackendUnderTest) -> None:
    answer = answer_of(backend, f"{_SELECTING}:importing")
    require(answer["initialized"] == [], f"importing the library initialised {answer['initialized']}")
    require(answer["names"], "importing the library registered no backend")


@clause("SEL-10", tier="device")
def test_selecting_initializes_no_runtime(backend: BackendUnderTest) -> None:
    if not method(backend.accelerator, "supports")("fork_after_selection"):
        unsupported(f"fork_after_selection: {probe_denial(backend.accelerator, 'fork_after_selection').evidence}")
    answer = answer_of(backend, f"{_SELECTING}:selecting")
    require(answer["initialized"] == [], f"selecting {backend.name} initialised {answer['initialized']}")
    require(answer["child_status"] == 0, f"after selection, a forked child could not use device 0: status {answer['child_status']}")


@clause("SEL-14")
def test_probe_changes_nothing(backend: BackendUnderTest) -> None:
    answer = answer_of(backend, f"{_SELECTING}:probing")
    for part, names in answer["changed"].items():
        require(names == [], f"the probe of {backend.name} changed {part}: {names}")
    require(answer["initialized"] == [], f"the probe of {backend.name} initialised {answer['initialized']}")
    require(len(set(answer["answers"])) == 1, f"the probe of {backend.name} answered {answer['answers']}")


@clause("SEL-14")
def test_installed_packages_without_a_device_hide_no_other(backend: BackendUnderTest) -> None:
    answer = answer_of(backend, "conformance.child_programs.shims:pretended_hosts")["planted"]
    require(answer["imported"] == [], f"probing imported {answer['imported']}")
    require(
        answer["selected"] == _RIVAL, f"beside packages without a device the selection is {answer['selected']}; due was {_RIVAL}"
    )


@clause("SEL-15")
@pytest.mark.parametrize(
    ("host", "due"),
    [
        ("cuda is made available", _RIVAL),
        ("cuda is made available, with a version but no bindings", _RIVAL),
        ("cuda is made available, the vendor has no device", _RIVAL),
        ("cuda is made available by a vendor with a device", "npu"),
        ("cuda is made unavailable by a vendor with a device", "musa"),
        ("cuda is there, but made unavailable", "cuda"),
    ],
)
def test_compatibility_shims_do_not_decide(backend: BackendUnderTest, host: str, due: str) -> None:
    selected = answer_of(backend, "conformance.child_programs.shims:pretended_hosts")["shims"][host]
    require(selected == due, f"where {host}, the selection is {selected}; due was {due}")
