"""Honest reports and packages, made in milliseconds without running the suite.

For: tests of everything that reads or shows reports. `make_report()` is a certified run on hardware; keyword arguments make it a worse
one. Every computed field is computed as the writer of a real report does. Not for: reports of real runs (`test_certify.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from conformance import CONTRACT_REVISION
from conformance.clauses import AREAS, CLAUSES
from conformance.effort_sizes import EXAMPLES
from reports.contract_digest import contract_digest
from reports.derived_facts import configuration_digest
from reports.levels import finished, nothing_judged
from reports.model import (
    FORMAT,
    Area,
    BackendFacts,
    CapabilityFact,
    CheckResult,
    ClauseResult,
    Declared,
    DeviceFacts,
    Edge,
    ExceptionEntry,
    Exceptions,
    Failure,
    HostFacts,
    Lane,
    LayoutPicture,
    OutcomeName,
    Report,
    Run,
    Span,
    SuiteFacts,
    Timeline,
    VisibleDevicesLayer,
)
from reports.package import package_files
from reports.rendering import renderer_version

CONFIGURATION = {"communication_backend": "mccl", "visible_devices": ["MUSA_VISIBLE_DEVICES"]}
_DECLARED = Declared(vendor="Example Devices", product="X100 & <co>")
DENIED = ("expandable_segments", "ipc")
"""Capabilities that the made backend lacks."""
_SAID = {
    "fail": "device('cuda') answered cuda:0; due was musa:0",
    "flaky": "the same input passed and failed",
    "not-run": "needs two devices in one process; musa has 1",
    "not-checkable": "the runtime shows no counter",
    "harness-error": "KeyError: 'x'",
}


def sha256(text: str) -> str:
    """A digest of the right shape."""
    return hashlib.sha256(text.encode()).hexdigest()


def make_timeline() -> Timeline:
    """Two streams, a kernel that reads too early, and the edge that is missing."""
    return Timeline(
        in_steps=True,
        lanes=(Lane(title="host"), Lane(title="s0", device=0), Lane(title="s1", device=0)),
        spans=(
            Span(lane=1, name="a = full(7)", kind="work", start=0, end=800, ran=1),
            Span(lane=1, name="e0.record", kind="record", start=1000, end=1800),
            Span(lane=2, name="wait_event(e0)", kind="wait", start=2000, end=2800),
            Span(lane=2, name="b.copy_(a)", kind="work", start=3000, end=3800, ran=0),
            Span(lane=0, name="wait for all, read all", kind="wait", start=4000, end=4800),
        ),
        edges=(
            Edge(from_lane=1, start=1700, lane=2, end=2750, missing=True),
            Edge(from_lane=2, start=3700, lane=0, end=4750, missing=False),
        ),
    )


def make_layout() -> LayoutPicture:
    """Two context-parallel and two tensor-parallel ranks."""
    return LayoutPicture(
        tensor_parallel_size=2,
        context_parallel_size=2,
        data_pad_size_multiplier=1,
        sequence_parallel=True,
        allgather_context_parallel=False,
        sequences=(6, 3),
    )


def make_failure(clause_id: str) -> Failure:
    """What shows the failure of a clause: with a timeline for streams, with a layout for routed experts."""
    area = clause_id.partition("-")[0]
    return Failure(
        program=f"test_{clause_id.lower().replace('-', '_')}(\n    indices=[0, 1],\n    name='<b>& \"quoted\"</b>',\n)",
        document={"steps": [["fill", "a", 7], ["copy", "b", "a"]], "streams": 2} if area == "STR" else None,
        replay=f"python -m conformance --backend=musa --hypothesis-seed=7 --examples=1000 conformance/checks.py::test_{clause_id.lower()}",
        timeline=make_timeline() if area == "STR" else None,
        layout=make_layout() if area == "RXA" else None,
    )


def make_report(
    *,
    simulated: bool = False,
    outcomes: Mapping[str, OutcomeName] | None = None,
    known_failures: tuple[ExceptionEntry, ...] = (),
    examples: int = 1000,
    complete: bool = True,
    tree: str = "clean",
) -> Report:
    """A report of a run in which every clause passed or is unsupported by a denied capability, except as `outcomes` says by clause."""
    given = dict(outcomes or {})
    clauses, checks = [], []
    for clause in CLAUSES.values():
        unsupported = clause.capability in DENIED
        outcome: OutcomeName = given.get(clause.id, "unsupported" if unsupported else "pass")
        name = f"conformance/checks.py::test_{clause.id.lower()}"
        evidence = f"{clause.capability}: calling it raised UnsupportedCapabilityError" if outcome == "unsupported" else None
        if outcome != "not-yet-checked":
            checks.append(
                CheckResult(
                    name=name,
                    tier=clause.tiers[0].value,
                    outcome=outcome,
                    seconds=0.25,
                    examples_run=examples if outcome == "pass" else 3 if outcome == "fail" else 0,
                    examples_discarded=2 if outcome == "pass" else 0,
                    said=evidence or _SAID.get(outcome),
                    failure=make_failure(clause.id) if outcome in ("fail", "flaky") else None,
                )
            )
        clauses.append(
            ClauseResult(
                id=clause.id,
                level=clause.level.value,
                subject=clause.subject.value,
                tiers=tuple(tier.value for tier in clause.tiers),
                capability=clause.capability,
                outcome=outcome,
                checks=() if outcome == "not-yet-checked" else (name,),
                text=clause.text,
            )
        )
    name = "fake-musa" if simulated else "musa"
    effort = next(name for name, size in EXAMPLES.items() if size == examples)
    report = Report(
        format=FORMAT,
        renderer=renderer_version(),
        verdict=nothing_judged(),
        declared=_DECLARED,
        run=Run(
            started="2026-11-30T12:00:00Z",
            seconds=1234.5,
            complete=complete,
            ending="every check was reported" if complete else "interrupted from the keyboard",
            argv=(
                f"--backend={name}",
                f"--effort={effort}",
                "--certify=out",
                *(f"--{field}={value}" for field, value in _DECLARED.model_dump().items()),
                *(["--known-failures=known.toml"] if known_failures else []),
            ),
            effort=effort,
            examples=examples,
            seed=7,
            tier="multi-node",
            fault="",
            checks=len(checks),
            reported=len(checks) if complete else len(checks) // 2,
            deselected=(),
        ),
        backend=BackendFacts(
            name=name,
            simulated=simulated,
            supplied=("backend", "transport"),
            accelerator="",
            normalizer="",
            aligner="",
            adapter="harness.accelerator.musa.MUSAAccelerator",
            module_digest=sha256("adapter"),
            distribution="accelerator-conformance 0.1.0",
            device_type="musa",
            configuration=CONFIGURATION,
            configuration_digest=configuration_digest(CONFIGURATION),
        ),
        suite=SuiteFacts(
            version="0.1.0",
            contract_revision=CONTRACT_REVISION,
            contract_digest=contract_digest(),
            digests={name: sha256(name) for name in ("conformance", "fakes", "harness", "reports")},
            commit="0123456789abcdef0123456789abcdef01234567",
            tree=tree,
            changed=("conformance/test_devices.py",) if tree == "dirty" else (),
        ),
        host=HostFacts(
            devices=tuple(
                DeviceFacts(index=index, name="Example X100", uuid=f"GPU-0000-{index}", pci=f"0000:{index}a:00.0", memory=48 << 30)
                for index in range(2)
            ),
            driver="4.3.1",
            runtime="4.3.0",
            torch="2.7.1",
            torch_build="PyTorch built with:\n  - GCC 11.4",
            os="Ubuntu 22.04.5 LTS",
            kernel="6.8.0-49-generic",
            machine="x86_64",
            python="3.10.12",
            visible_devices=(
                VisibleDevicesLayer(variable="MUSA_VISIBLE_DEVICES", value="0,1", decided=True),
                VisibleDevicesLayer(variable="CUDA_VISIBLE_DEVICES", decided=False),
            ),
            libraries={"hypothesis": "6.170.17", "pytest": "9.2.0", "torch_musa": "2.7.1"},
        ),
        capabilities=tuple(
            CapabilityFact(
                name=name,
                supported=name not in DENIED,
                evidence=f"{name}: tried, and it {'raised' if name in DENIED else 'worked'}",
            )
            for name in sorted({clause.capability for clause in CLAUSES.values() if clause.capability})
        ),
        exceptions=Exceptions(digest=sha256("known failures"), entries=known_failures, problems=()) if known_failures else None,
        counts={},
        areas=tuple(Area(name=area.name, title=area.title) for area in AREAS.values()),
        clauses=tuple(clauses),
        checks=tuple(sorted(checks, key=lambda check: check.name)),
        extra={},
    )
    return finished(report)


def make_known_failure(clause: str = "DEV-4") -> ExceptionEntry:
    """An entry that has not expired on the day of the run."""
    return ExceptionEntry(
        clause=clause,
        kind="known-failure",
        device="Example X*",
        reason="fixed in 4.4",
        url="https://example.org/1",
        expires="2027-06-30",
    )


def make_failing_report() -> Report:
    """A simulated run with one clause of every outcome."""
    return make_report(
        simulated=True,
        outcomes={
            "DEV-1": "fail",
            "DEV-4": "fail",
            "STR-3": "fail",
            "RXA-2": "fail",
            "DEV-5": "not-run",
            "MEM-4": "not-checkable",
            "RNG-2": "flaky",
            "OPS-1": "harness-error",
            "COL-3": "not-yet-checked",
        },
        known_failures=(make_known_failure(),),
        examples=100,
    )


def make_package(report: Report | None = None) -> dict[str, bytes]:
    """The files of an honest package, unsigned."""
    return package_files(report or make_report())
