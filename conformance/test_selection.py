"""SEL: choosing one accelerator, in process, over registries and environments that are drawn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require
from conformance.models.selection import EXPLICIT, ModelBackend, expected_selection
from conformance.stand_ins import Factory, complete, complete_class
from harness.accelerator.contract import Accelerator
from harness.accelerator.registration import Availability
from harness.accelerator.registry import ENTRY_POINT_GROUP, AcceleratorRegistry
from harness.accelerator.selection import AcceleratorSelector

_NAMES = ("ant", "bee", "cat", "dog")
_VARIABLES = ("BEE_VISIBLE_DEVICES", "CAT_PATCH_PATH")
_THREADS = 12

_BACKENDS = st.lists(
    st.builds(
        ModelBackend,
        name=st.sampled_from(_NAMES),
        priority=st.integers(-1, 1),
        state=st.sampled_from(("usable", "usable", "unusable", "raises")),
        request_variables=st.sampled_from(((), (), (_VARIABLES[0],), (_VARIABLES[1],), _VARIABLES)),
    ),
    max_size=4,
    unique_by=lambda backend: backend.name,
)
_ENVIRONMENTS = st.fixed_dictionaries(
    {},
    optional={
        EXPLICIT: st.sampled_from(("", " ", "auto", " AUTO ", "ant", " Bee\n", "CAT", "dog", "eel")),
        _VARIABLES[0]: st.sampled_from(("", "0", "0,1")),
        _VARIABLES[1]: st.sampled_from(("", "/opt/patches")),
    },
)


def _probe(state: str, name: str) -> Callable[[], Availability]:
    def probe() -> Availability:
        if state == "raises":
            raise OSError(f"the {name} driver does not answer")
        return Availability(state == "usable", f"no {name} is plugged in")

    return probe


def _selector(backends: Sequence[ModelBackend], environment: Mapping[str, str]) -> AcceleratorSelector:
    registry = AcceleratorRegistry()
    for backend in backends:
        registry.register(
            backend.name,
            Factory(complete(backend.name)),
            _probe(backend.state, backend.name),
            backend.priority,
            request_variables=backend.request_variables,
        )
    return AcceleratorSelector(registry, environment)


def _outcome(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        answer = call()
    except (RuntimeError, ValueError) as refusal:
        return "refused", f"{type(refusal).__name__}: {refusal}"
    return ("none", "") if answer is None else ("selected", answer.name)


@clause("SEL-1")
@given(backends=_BACKENDS, environment=_ENVIRONMENTS)
def test_order_of_selection(backend: BackendUnderTest, backends: list[ModelBackend], environment: dict[str, str]) -> None:
    due = expected_selection(backends, environment)
    kind, text = _outcome(_selector(backends, environment).get)
    came = f"selecting among {backends} with {environment} gave {kind} {text}"
    if due.kind == "selected":
        require((kind, text) == ("selected", due.name), f"{came}; due was {due.name}")
    else:
        require(kind == "refused", f"{came}; due was an error ({due.kind})")


_AUTOMATIC = (None, "auto", " Auto\t")
_EXPLICIT = (*_AUTOMATIC, "ant", "ANT", " ant\n")


@clause("SEL-1", examples=0.3)
@given(variable=st.sampled_from(_VARIABLES), value=st.sampled_from(("", "0")), explicit=st.sampled_from(_EXPLICIT))
def test_request_variables_order(backend: BackendUnderTest, variable: str, value: str, explicit: str | None) -> None:
    """The rows of the clause, one by one, so that a failure reads as a sentence."""
    backends = [ModelBackend("ant", 1, "usable"), ModelBackend("bee", 0, "usable", (variable,))]
    environment = {variable: value} | ({} if explicit is None else {EXPLICIT: explicit})
    name = "bee" if value and explicit in _AUTOMATIC else "ant"
    got = _outcome(_selector(backends, environment).get)
    require(got == ("selected", name), f"with {environment} the selection was {got}; due was {name}")


_BROKEN: Mapping[str, tuple[dict[str, Any], str]] = {
    "the probe says no": ({"is_available": _probe("unusable", "broken")}, "no broken is plugged in"),
    "the probe raises": ({"is_available": _probe("raises", "broken")}, "the broken driver does not answer"),
    "the factory raises": ({"factory": Factory(ModuleNotFoundError("No module named 'dep'", name="dep"))}, "No module named 'dep'"),
    "the product is not available": ({"factory": Factory(complete("broken", available=False))}, "is_available"),
}


@clause("SEL-2", examples=0.5)
@given(why=st.sampled_from(sorted(_BROKEN)), by=st.sampled_from((EXPLICIT, "BROKEN_DEVICES")), rank=st.integers(-1, 1))
def test_unmet_request_is_refused(backend: BackendUnderTest, why: str, by: str, rank: int) -> None:
    options, reason = _BROKEN[why]
    spare = Factory(complete("spare"))
    registry = AcceleratorRegistry()
    arguments = {"factory": Factory(complete("broken")), "is_available": _probe("usable", "broken"), **options}
    registry.register("broken", **arguments, priority=rank, request_variables=("BROKEN_DEVICES",), remedy="replug the cable")
    registry.register("spare", spare, _probe("usable", "spare"))
    selector = AcceleratorSelector(registry, {by: "broken"})
    for _ in range(2):
        error = expect_refusal(selector.get, errors=(RuntimeError,), quoting="broken")
        for part in (reason, "replug the cable", by):
            require(part in str(error), f"{why}, requested by {by}: the error does not mention {part!r}: {error}")
    require(spare.calls == 0, f"{why}, requested by {by}: another backend was constructed")


@clause("SEL-2", "REG-4")
def test_request_for_a_backend_that_cannot_be_loaded(backend: BackendUnderTest) -> None:
    published = EntryPoint("broken", "surely_absent_dependency:PLUGIN", ENTRY_POINT_GROUP)
    registry = AcceleratorRegistry(entry_points=lambda: [published])
    registry.register("spare", Factory(complete("spare")), _probe("usable", "spare"))
    error = expect_refusal(AcceleratorSelector(registry, {EXPLICIT: "broken"}).get, errors=(RuntimeError,), quoting="broken")
    require("surely_absent_dependency" in str(error), f"the error does not name what is missing: {error}")
    got = _outcome(AcceleratorSelector(registry, {}).get)
    require(got == ("selected", "spare"), f"automatic selection beside a broken entry point gave {got}; due was spare")


@clause("SEL-3", examples=0.4)
@given(
    names=st.permutations(_NAMES), count=st.integers(0, 4), asked=st.sampled_from(("eel", "antelope", "none", "ant,bee", "Ünknown"))
)
def test_unknown_names_are_refused_with_the_list(backend: BackendUnderTest, names: list[str], count: int, asked: str) -> None:
    backends = [ModelBackend(name, 0, "usable") for name in names[:count]]
    error = expect_refusal(_selector(backends, {EXPLICIT: asked}).get, errors=(ValueError,), quoting=asked)
    due = ", ".join(sorted(names[:count]))
    require(due in str(error), f"the error does not list {due!r}: {error}")


@clause("SEL-4", examples=0.4)
@given(states=st.lists(st.sampled_from(("unusable", "raises")), max_size=4), explicit=st.sampled_from((None, "auto", "")))
def test_nothing_usable_is_refused_with_each_reason(backend: BackendUnderTest, states: list[str], explicit: str | None) -> None:
    backends = [ModelBackend(name, 0, state) for name, state in zip(_NAMES, states, strict=False)]
    error = expect_refusal(_selector(backends, {} if explicit is None else {EXPLICIT: explicit}).get, errors=(RuntimeError,))
    for each in backends:
        reason = f"the {each.name} driver does not answer" if each.state == "raises" else f"no {each.name} is plugged in"
        lines = [line for line in str(error).splitlines() if reason in line]
        require(len(lines) == 1 and each.name in lines[0], f"no line has {each.name} with its reason {reason!r}: {error}")


@clause("SEL-5", examples=0.6)
@given(backends=_BACKENDS, environment=_ENVIRONMENTS)
def test_initialize_is_none_only_without_devices_and_request(
    backend: BackendUnderTest, backends: list[ModelBackend], environment: dict[str, str]
) -> None:
    due = expected_selection(backends, environment)
    kind, text = _outcome(_selector(backends, environment).initialize)
    wanted = {"selected": "selected", "nothing": "none"}.get(due.kind, "refused")
    require(kind == wanted, f"initializing among {backends} with {environment} gave {kind} {text}; due was {wanted} {due.name}")


@clause("SEL-8")
def test_concurrent_first_calls_share_one_selection(backend: BackendUnderTest) -> None:
    factory, bootstrap = Factory(complete("ant")), Factory(True)
    start, intruded = threading.Barrier(_THREADS), threading.Event()
    inside: list[int] = []

    def probe() -> bool:
        # Long enough for the others to come in if nothing keeps them out; the first of them ends the wait.
        inside.append(1)
        if len(inside) > 1:
            intruded.set()
        intruded.wait(0.1)
        return True

    registry = AcceleratorRegistry()
    registry.register("ant", factory, probe, bootstrap=bootstrap)
    selector = AcceleratorSelector(registry, {})
    got: list[Any] = []

    def ask() -> None:
        start.wait(20)
        got.append(selector.get())

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    require(len(got) == _THREADS, f"{_THREADS} threads asked, {len(got)} got an answer within 20 s")
    require(len({id(each) for each in got}) == 1, f"{_THREADS} threads got {len({id(each) for each in got})} objects; due was one")
    require(factory.calls == 1, f"the factory was called {factory.calls} times; due was once")
    require(bootstrap.calls == 1, f"the bootstrap was called {bootstrap.calls} times; due was once")


@clause("SEL-9", examples=0.5)
@given(
    part=st.sampled_from(("factory", "is_available", "bootstrap")),
    failures=st.integers(1, 3),
    environment=st.sampled_from(({}, {EXPLICIT: "ant"}, {"ANT": "1"})),
)
def test_next_call_succeeds_once_the_cause_is_mended(
    backend: BackendUnderTest, part: str, failures: int, environment: dict[str, str]
) -> None:
    left = [OSError("not yet")] * failures
    product = complete("ant")

    def flaky(*_: Any) -> Any:
        if left:
            raise left.pop()
        return product

    registry = AcceleratorRegistry()
    parts: dict[str, Any] = {"factory": lambda: product, "is_available": lambda: True, part: flaky}
    registry.register("ant", **parts, request_variables=("ANT",))
    selector = AcceleratorSelector(registry, environment)
    for _ in range(failures):
        expect_refusal(selector.get, errors=(RuntimeError,), quoting="not yet")
    got = _outcome(selector.get)
    require(got == ("selected", "ant"), f"{part} failed {failures} time(s) and was mended; the next call gave {got}; due was ant")


@clause("SEL-11", examples=0.5)
@given(
    raising=st.sets(st.sampled_from(_NAMES)),
    error=st.sampled_from((OSError, ImportError, AttributeError, AssertionError, NotImplementedError, KeyError)),
)
def test_probes_that_raise_count_as_unavailable(backend: BackendUnderTest, raising: set[str], error: type[Exception]) -> None:
    def failing(name: str) -> Callable[[], bool]:
        def probe() -> bool:
            raise error(f"{name} broke")

        return probe

    registry = AcceleratorRegistry()
    for name in _NAMES:
        registry.register(name, Factory(complete(name)), failing(name) if name in raising else lambda: True)
    due = min(set(_NAMES) - raising, default=None)
    selector = AcceleratorSelector(registry, {})
    if due is not None:
        got = _outcome(selector.get)
        require(got == ("selected", due), f"the probes of {sorted(raising)} raise {error.__name__}: got {got}; due was {due}")
        return
    refusal = expect_refusal(selector.get, errors=(RuntimeError,))
    for name in _NAMES:
        require(f"{name} broke" in str(refusal), f"the error of the probe of {name} is not shown: {refusal}")


@clause("SEL-12", examples=0.3)
@given(
    value=st.sampled_from((None, 3, "musa", object(), Accelerator, complete_class(), complete(without={"name"}), [], lambda: None))
)
def test_set_refuses_what_is_no_accelerator(backend: BackendUnderTest, value: Any) -> None:
    selector = _selector([ModelBackend("ant", 0, "usable")], {})
    before = selector.get()
    expect_refusal(selector.set, value, errors=(TypeError,))
    require(selector.get() is before, f"after the refused set({value!r}) another accelerator is selected")


@clause("SEL-12")
@pytest.mark.parametrize("available", [False, OSError("gone")], ids=["unavailable", "raising"])
def test_set_refuses_what_is_unavailable(backend: BackendUnderTest, available: Any) -> None:
    selector = _selector([ModelBackend("ant", 0, "usable")], {})
    expect_refusal(selector.set, complete("bee", available=available), errors=(RuntimeError,), quoting="bee")
    got = _outcome(selector.get)
    require(got == ("selected", "ant"), f"after the refused set the selection is {got}; due was ant")
    usable = complete("cat")
    selector.set(usable)
    require(selector.get() is usable, "set() of an available accelerator does not select it")


_INTERFACE = sorted(
    {*Accelerator.__abstractmethods__, "name", "device_type", "communication_backend_name", "visible_devices_grammar"}
)


@clause("SEL-13")
@given(without=st.sets(st.sampled_from(_INTERFACE), min_size=1), when=st.sampled_from(("registered", "chosen", "set")))
def test_incomplete_backends_are_refused_with_every_lack(backend: BackendUnderTest, without: set[str], when: str) -> None:
    lacking = complete_class("ant", without=without)
    registry = AcceleratorRegistry()
    selector = AcceleratorSelector(registry, {EXPLICIT: "ant"})
    if when == "registered":
        error = expect_refusal(registry.register, "ant", lacking, errors=(TypeError,))
    else:
        # What was abstract when the class was made no longer stops its construction, as in a duck-typed backend.
        lacking.__abstractmethods__ = frozenset()
        if when == "set":
            error = expect_refusal(selector.set, lacking(), errors=(TypeError,))
        else:
            registry.register("ant", partial(lacking), lambda: True)
            error = expect_refusal(selector.get, errors=(TypeError,), quoting="ant")
    unnamed = sorted(name for name in without if name not in str(error))
    require(not unnamed, f"a backend without {sorted(without)} was refused when {when}, but {unnamed} are not named: {error}")


@clause("SEL-13")
@pytest.mark.parametrize("product", [None, object(), Accelerator], ids=["None", "object", "class"])
def test_products_that_are_no_accelerators_are_refused(backend: BackendUnderTest, product: Any) -> None:
    registry = AcceleratorRegistry()
    registry.register("ant", lambda: product, lambda: True)
    expect_refusal(AcceleratorSelector(registry, {}).get, errors=(TypeError,), quoting="ant")
