"""The step about backend, devices and capabilities: what the report says of them does not contradict what its checks did.

For: `examining.py`. A forger who invents facts must invent all of them to fit. Not for: what the run is worth (`worth_steps.py`), or
whether the facts are true, which no file can show.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from conformance.backends import FAKE_PREFIX
from reports.derived_facts import configuration_digest, supplied_subjects
from reports.facts import PACKAGES
from reports.model import CheckResult, Report
from reports.rendering import REPORT
from reports.suite_options import read
from reports.untrusted_text import mixed_alphabets, printable
from reports.verification.findings import Examined, Finding, Note, Said, Step

_FAKES = "fakes."
_SIMULATED = "simulated"
_COMMIT = re.compile("([0-9a-f]{40}|[0-9a-f]{64})?")
_GAVE_A_VERDICT = ("pass", "fail", "flaky")


def find_facts(examined: Examined) -> Iterator[Said]:
    """Facts agree with each other and with what ran."""
    report = examined.report
    declared = report.declared
    if declared.vendor or declared.product:
        yield Note(f"As declared, and checked by nobody: vendor '{_short(declared.vendor)}', product '{_short(declared.product)}'.")
    for word, alphabets in mixed_alphabets(f"{declared.vendor} {declared.product}").items():
        yield Note(
            f"'{word}' is written in letters of {' and '.join(alphabets)}, which look alike: it may not be the name that it seems."
        )
    yield from _simulated(report)
    yield from _derived(report)
    yield from _devices(report)
    yield from _capabilities(report)
    suite = report.suite
    if suite.tree == "clean" and suite.changed:
        yield Finding.about("tree", f"{REPORT}/suite/tree", f"clean, and {suite.changed[0]} was changed")
    if set(suite.digests) != set(PACKAGES):
        yield Finding.about(
            "suite-digests", f"{REPORT}/suite/digests", f"of {', '.join(suite.digests)}; due are {', '.join(PACKAGES)}"
        )
    if not _COMMIT.fullmatch(suite.commit):
        yield Finding.about("commit", f"{REPORT}/suite/commit", f"{suite.commit} is no commit")


def _short(name: str) -> str:
    return printable(name, longest=80)


def _simulated(report: Report) -> Iterator[Said]:
    """What is said to be no fake does not look like one."""
    backend, host = report.backend, report.host
    if backend.simulated:
        return
    signs = {
        "backend/name": backend.name.startswith(FAKE_PREFIX),
        "backend/adapter": backend.adapter.startswith(_FAKES),
        "backend/accelerator": backend.accelerator.startswith(_FAKES),
        "run/argv": any(
            option.name == "--backend" and (option.value or "").startswith(FAKE_PREFIX) for option in read(report.run.argv)
        ),
        "host/driver": host.driver == _SIMULATED,
        "host/devices": any(f"({_SIMULATED})" in (device.name or "") for device in host.devices),
    }
    for place, is_sign in signs.items():
        if is_sign:
            yield Finding(
                "simulated", f"{REPORT}/{place}", "names a simulated machine, and the report says that nothing was simulated"
            )


def _derived(report: Report) -> Iterator[Said]:
    """Facts that follow from others."""
    backend = report.backend
    supplied = supplied_subjects(backend.normalizer, backend.aligner)
    if backend.supplied != supplied:
        message = f"{', '.join(backend.supplied)}; with this normalizer and aligner they are {', '.join(supplied)}"
        yield Finding.about("supplied", f"{REPORT}/backend/supplied", message)
    if backend.configuration_digest != configuration_digest(backend.configuration):
        yield Finding("configuration-digest", f"{REPORT}/backend/configuration_digest", "not the digest of the configuration shown")


def _devices(report: Report) -> Iterator[Said]:
    """The devices are counted through, no two are one, and no check used more than there are."""
    devices = report.host.devices
    where = f"{REPORT}/host/devices"
    if [device.index for device in devices] != list(range(len(devices))):
        yield Finding("devices", where, "the devices are not numbered from 0 on")
    for field in ("uuid", "pci"):
        told = Counter(getattr(device, field) for device in devices)
        twice = [value for value, count in told.items() if value and count > 1]
        if twice:
            yield Finding.about("devices", where, f"two devices have the {field} {twice[0]}")
    for check in report.checks:
        if check.outcome in _GAVE_A_VERDICT:
            yield from _used(check, report)


def _used(check: CheckResult, report: Report) -> Iterator[Said]:
    """What a check with a verdict needed was there."""
    where = f"{REPORT}/checks/{check.name}"
    if check.tier != "host" and report.backend.no_device_reason is not None:
        yield Finding.about("device-missing", where, f"{check.outcome} on a device, and the report says that none could be used")
    elif check.tier == "multi-device" and len(report.host.devices) == 1:
        yield Finding.about("device-missing", where, f"{check.outcome} with two devices, and the report has one")


def _capabilities(report: Report) -> Iterator[Said]:
    """Every capability has one answer, and no check passed without one that it needs."""
    names = Counter(fact.name for fact in report.capabilities)
    for name, count in names.items():
        if count > 1:
            yield Finding.about("capability-twice", f"{REPORT}/capabilities/{name}", f"stands there {count} times")
    denied = {fact.name for fact in report.capabilities if not fact.supported}
    outcomes = {check.name: check.outcome for check in report.checks}
    for clause in report.clauses:
        passed = [name for name in clause.checks if outcomes.get(name) == "pass"]
        if clause.capability in denied and passed:
            message = f"is denied, and {passed[0]} of {clause.id} passed, which does not run without it"
            yield Finding.about("capability-denied", f"{REPORT}/capabilities/{clause.capability}", message)


FACT_STEPS = (Step("facts", "Facts about backend, devices and capabilities fit what ran", find_facts),)
