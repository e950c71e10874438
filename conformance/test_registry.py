"""REG: registering accelerators by name, without importing them, and finding published ones."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require
from conformance.child_programs.answers import answer_of
from conformance.stand_ins import Factory
from conformance.text_strategies import some_text
from harness.accelerator.registry import AcceleratorRegistry

_SPACES = st.text(st.sampled_from(" \t\n"), max_size=2)
_RESERVED = ("auto", "none")


def spellings(names: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A name in any case with any spaces around it."""
    cases = st.sampled_from((str.lower, str.upper, str.title, str.swapcase))
    return st.builds(lambda before, name, case, after: before + case(name) + after, _SPACES, names, cases, _SPACES)


_NAMES = st.one_of(
    spellings(st.sampled_from(("musa", "cuda", "npu", "vendor_9", "x-y", "none_at_all", "automatic"))),
    some_text(6),
    spellings(st.sampled_from((*_RESERVED, ""))),
)


@clause("REG-1")
@given(name=_NAMES)
def test_names_are_stripped_and_lower_cased(backend: BackendUnderTest, name: str) -> None:
    due = name.strip().lower()
    registry = AcceleratorRegistry()
    if due in ("", *_RESERVED):
        expect_refusal(registry.register, name, Factory(), errors=(ValueError,))
        require(registry.names() == (), f"the refused name {name!r} is listed: {registry.names()}")
        return
    registry.register(name, Factory())
    require(registry.names() == (due,), f"register({name!r}) lists {registry.names()}; due was {(due,)}")
    for spelling in (name, due, f" {due}\n"):
        require(registry.get(spelling).name == due, f"registered as {name!r}, asked for {spelling!r}: got {registry.get(spelling)}")


@clause("REG-2")
@given(steps=st.lists(st.tuples(spellings(st.sampled_from("abc")), st.booleans()), min_size=2, max_size=8))
def test_a_name_is_replaced_only_on_purpose(backend: BackendUnderTest, steps: list[tuple[str, bool]]) -> None:
    registry, due = AcceleratorRegistry(), dict[str, Factory]()
    for name, replace in steps:
        factory, folded = Factory(), name.strip().lower()
        if folded in due and not replace:
            expect_refusal(registry.register, name, factory, errors=(ValueError,), quoting=folded)
        else:
            registry.register(name, factory, replace=replace)
            due[folded] = factory
        kept = {known: registry.get(known).factory for known in registry.names()}
        require(kept == due, f"after register({name!r}, replace={replace}) the factories are {kept}; due were {due}")


def _published(backend: BackendUnderTest) -> dict[str, Any]:
    return answer_of(
        backend,
        "conformance.child_programs.registry:published_backends",
        environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        fresh_interpreter=True,
    )


@clause("REG-3")
def test_registering_and_listing_import_nothing(backend: BackendUnderTest) -> None:
    answer = _published(backend)
    require(answer["calls"] == 0, f"registering and listing called a factory or probe {answer['calls']} time(s)")
    require(answer["imported"] == [], f"registering and listing imported {answer['imported']}")
    due = {"published_sound", "published_broken", "published_untidy", "lazy", "called"}
    require(due <= set(answer["names"]), f"listed were {answer['names']}; due were at least {sorted(due)}")


@clause("REG-3")
def test_built_in_backends_are_registered_without_their_vendors_packages(backend: BackendUnderTest) -> None:
    answer = _published(backend)
    require(answer["vendor_modules"] == [], f"importing and listing the built-in backends imported {answer['vendor_modules']}")


@clause("REG-4")
def test_published_backends_are_found_and_a_failing_one_hides_none(backend: BackendUnderTest) -> None:
    answer = _published(backend)
    require(answer["error"] is None, f"looking at the published backends raised {answer['error']}")
    require("published_sound" in answer["usable"], f"usable were {answer['usable']}; published_sound was due among them")
    require(answer["priority"] == 7, f"the priority of the published plugin is {answer['priority']}; due was 7")
    for name, said in (("published_broken", "surely_absent_dependency"), ("published_untidy", "nothing_of_that_name")):
        require(name not in answer["usable"], f"{name} cannot be loaded, yet it is listed as usable")
        failure = answer["failures"].get(name, "")
        require(said in failure, f"the failure of {name} is {failure!r}; due was its error, which mentions {said}")
        refusal = answer["refusals"][name]
        require(
            said in refusal and name in refusal, f"asking for {name} gave {refusal!r}; due was an error with its name and {said}"
        )
