"""CAP: the closed set of capabilities, and answers that hold."""

from __future__ import annotations

import difflib
from typing import Any

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from conformance.accelerator_access import device_type_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.capability_demonstrations import demonstrate
from conformance.capability_probes import probe_denial
from conformance.checking import clause, expect_refusal, require
from conformance.child_programs import devices as children
from conformance.errors import ClauseViolation
from conformance.text_strategies import some_text
from harness.accelerator.capabilities import Capability

NAMES = tuple(member.value for member in Capability)
_names = st.sampled_from(NAMES)


@st.composite
def _typos(draw: st.DrawFn) -> str:
    """A known name with one slip of the keyboard."""
    name = draw(_names)
    at = draw(st.integers(0, len(name) - 1))
    slips = {
        "dropped": name[:at] + name[at + 1 :],
        "doubled": name[: at + 1] + name[at:],
        "hyphen": name.replace("_", "-"),
        "plural": f"{name}s",
        "prefix": f"has_{name}",
        "swapped": name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :],
    }
    return slips[draw(st.sampled_from(sorted(slips)))]


@clause("CAP-1")
@given(name=_typos() | some_text(12, surrogates=True))
def test_a_name_outside_the_set_is_refused_with_the_nearest(backend: BackendUnderTest, name: str) -> None:
    # Whether case and surrounding spaces matter is left to the adapter.
    assume(name.strip().lower() not in NAMES)
    refusal = expect_refusal(method(backend.accelerator, "supports"), name, errors=(ValueError, KeyError, LookupError))
    near = difflib.get_close_matches(name.strip().lower(), NAMES, n=3, cutoff=0.75)
    require(
        not near or any(known in str(refusal) for known in near),
        f"supports({name!r}) was refused without a name that is near, such as {near[0] if near else ''!r}: {refusal}",
    )


@clause("CAP-1")
@given(name=st.none() | st.booleans() | st.integers() | st.just(("bf16",)))
def test_what_is_no_name_is_refused(backend: BackendUnderTest, name: Any) -> None:
    expect_refusal(method(backend.accelerator, "supports"), name, errors=(ValueError, TypeError, LookupError))


@clause("CAP-1")
def test_every_known_name_has_an_answer(backend: BackendUnderTest) -> None:
    supports = method(backend.accelerator, "supports")
    answers = {name: supports(name) for name in NAMES}
    wrong = {name: answer for name, answer in answers.items() if not isinstance(answer, bool)}
    require(not wrong, f"supports() must answer True or False; it answered {wrong}")


@clause("CAP-2")
def test_what_is_declared_works(backend: BackendUnderTest) -> None:
    accelerator = backend.accelerator
    method(accelerator, "set_device")(0)
    broken: list[str] = []
    for capability in Capability:
        if capability.is_hint or not method(accelerator, "supports")(capability.value):
            continue
        try:
            demonstrate(accelerator, capability)
        except Exception as error:  # noqa: BLE001 - every declared capability is tried, and each failure is named
            text = str(error) if isinstance(error, ClauseViolation) else f"{type(error).__name__}: {error}"
            broken.append(f"{capability.value}: {text.splitlines()[0]}")
    require(not broken, "declared, but it does not work:\n  " + "\n  ".join(broken))


@clause("CAP-2")
def test_forking_after_selection_works_where_it_is_declared(backend: BackendUnderTest) -> None:
    if not method(backend.accelerator, "supports")("fork_after_selection"):
        return
    answer = backend.in_child(children.fork_after_selection)["answer"]
    require(answer == "2", f"after selection and a fork, 1 + 1 on the device in the child is {answer!r}; due was '2'")


@clause("CAP-3")
def test_each_denial_has_evidence_and_is_kept(backend: BackendUnderTest) -> None:
    accelerator = backend.accelerator
    method(accelerator, "set_device")(0)
    wrong: list[str] = []
    for capability in Capability:
        if method(accelerator, "supports")(capability.value):
            continue
        found = probe_denial(accelerator, capability)
        if found.supported:
            wrong.append(f"{capability.value}: {found.evidence}")
        elif not found.evidence.strip():
            wrong.append(f"{capability.value}: the probe has no evidence")
    require(not wrong, "denied, but the adapter serves it all the same:\n  " + "\n  ".join(wrong))


@clause("CAP-3")
def test_every_answer_of_probe_says_what_was_looked_at(backend: BackendUnderTest) -> None:
    probe, supports = method(backend.accelerator, "probe"), method(backend.accelerator, "supports")
    for name in NAMES:
        answer = probe(name)
        evidence = getattr(answer, "evidence", None)
        require(isinstance(evidence, str) and evidence.strip(), f"probe({name!r}) has evidence {evidence!r}; due was a sentence")
        require(
            answer.supported == supports(name),
            f"probe({name!r}).supported is {answer.supported!r}, but supports({name!r}) is {supports(name)!r}",
        )


@clause("CAP-4", examples=0.3)
@given(names=st.lists(_names, min_size=2, max_size=12))
def test_answers_do_not_depend_on_the_order_of_questions(backend: BackendUnderTest, names: list[str]) -> None:
    supports, fresh = method(backend.accelerator, "supports"), method(backend.new_accelerator(), "supports")
    for name in names:
        first, second = supports(name), fresh(name)
        require(first == second, f"supports({name!r}) is {first!r}, and of a fresh adapter object, asked {names}, {second!r}")


@clause("CAP-4")
def test_answers_last_and_initialise_nothing(backend: BackendUnderTest) -> None:
    early = [member.value for member in Capability if not _needs_device(member, backend)]
    answer = backend.in_child(children.answers_over_a_process, names=list(NAMES), early=early)
    require(
        not answer["initialised_by"],
        f"supports({''.join(answer['initialised_by'])!r}) initialised the runtime; only answers about the device may",
    )
    for when, what in (("after_use", "after use of the device"), ("other_adapter", "of another adapter object")):
        changed = {name: (then, answer[when][name]) for name, then in answer["first"].items() if answer[when][name] != then}
        require(not changed, f"{what}, answers changed (capability: before, after): {changed}")


def _needs_device(capability: Capability, backend: BackendUnderTest) -> bool:
    """Whether only the device can tell: also for streams and events that come from `torch.Stream`, which every device type has."""
    if capability in (Capability.STREAMS, Capability.EVENTS, Capability.EVENT_TIMING):
        return not hasattr(getattr(torch, device_type_of(backend.accelerator), None), "Stream")
    return capability.needs_device
