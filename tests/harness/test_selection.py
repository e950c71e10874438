"""AcceleratorSelector: order, refusals, once-only, recovery; and the public functions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import harness.accelerator as public
from conformance.stand_ins import Factory, complete, complete_class
from harness.accelerator import default, probes
from harness.accelerator.registration import Availability
from harness.accelerator.registry import ENTRY_POINT_GROUP, AcceleratorRegistry
from harness.accelerator.selection import AcceleratorSelector
from harness.errors import (
    AcceleratorUnavailableError,
    IncompleteAcceleratorError,
    NoAcceleratorError,
    ReentrantSelectionError,
    UnknownAcceleratorError,
    VendorPatchError,
)


def yes() -> bool:
    return True


def no() -> bool:
    return False


def selector_of(environment: dict[str, str] | None = None, **backends: dict[str, Any]) -> AcceleratorSelector:
    """A selector over backends given as the arguments of `register`; the default factory makes an accelerator of that name."""
    registry = AcceleratorRegistry()
    for name, options in backends.items():
        registry.register(name, **{"factory": Factory(complete(name)), "is_available": yes, **options})
    return AcceleratorSelector(registry, environment or {})


class TestOrder:
    def test_the_highest_available_priority_ties_by_name(self) -> None:
        selector = selector_of(b={"priority": 1}, a={"priority": 1}, c={"priority": 9, "is_available": no})
        assert selector.get().name == "a"

    def test_b43_an_installed_vendor_without_a_device_does_not_hide_another(self) -> None:
        assert selector_of(xpu={"priority": 200, "is_available": no}, cuda={"priority": 100}).get().name == "cuda"

    @pytest.mark.parametrize("value", ["low", " LOW ", "Low\n"])
    def test_an_explicit_request_comes_first(self, value: str) -> None:
        backends = {"low": {"priority": -5}, "high": {"priority": 5}, "vendor": {"request_variables": ("VENDOR",)}}
        assert selector_of({"SLIME_ACCELERATOR": value, "VENDOR": "1"}, **backends).get().name == "low"

    @pytest.mark.parametrize("explicit", [None, "", "  ", "auto", " AUTO "])
    def test_then_a_vendor_request(self, explicit: str | None) -> None:
        environment = {"VENDOR_B": "0,1"} | ({} if explicit is None else {"SLIME_ACCELERATOR": explicit})
        selector = selector_of(environment, vendor={"priority": -5, "request_variables": ("VENDOR_A", "VENDOR_B")}, other={})
        assert selector.get().name == "vendor"
        assert selector.request().source == "VENDOR_B='0,1'"  # type: ignore[union-attr]

    @pytest.mark.parametrize("value", ["", " "])
    def test_a_blank_vendor_variable_requests_nothing(self, value: str) -> None:
        selector = selector_of({"VENDOR": value}, vendor={"priority": -5, "request_variables": ("VENDOR",)}, other={})
        assert selector.get().name == "other"
        assert selector.request() is None

    def test_of_two_vendor_requests_the_higher_priority_counts(self) -> None:
        backends = {name: {"priority": priority, "request_variables": ("V",)} for name, priority in (("a", 0), ("b", 3), ("c", 3))}
        assert selector_of({"V": "1"}, **backends).get().name == "b"

    def test_the_prefix_is_a_parameter(self) -> None:
        registry = AcceleratorRegistry()
        registry.register("a", Factory(complete("a")), yes, priority=1)
        registry.register("b", Factory(complete("b")), yes)
        environment = {"SLIME_ACCELERATOR": "a", "OTHER_ACCELERATOR": "b"}
        assert AcceleratorSelector(registry, environment, "OTHER_").get().name == "b"

    def test_the_answer_is_kept_until_reset(self) -> None:
        environment: dict[str, str] = {}
        selector = selector_of(environment, a={"priority": 1}, b={})
        selector = AcceleratorSelector(selector.registry, environment)
        first = selector.get()
        environment["SLIME_ACCELERATOR"] = "b"
        assert selector.get() is first
        selector.reset()
        assert selector.get().name == "b"

    def test_a_backend_without_a_probe_is_constructed_and_asked(self) -> None:
        unavailable, broken = Factory(complete("x", available=False)), Factory(ModuleNotFoundError("dep", name="dep"))
        selector = selector_of(
            x={"factory": unavailable, "is_available": None, "priority": 3},
            y={"factory": broken, "is_available": None, "priority": 2},
            z={"is_available": None},
        )
        assert selector.get().name == "z"
        assert (unavailable.calls, broken.calls) == (1, 1)

    def test_a_requested_backend_without_a_probe_is_constructed_and_asked(self) -> None:
        environment = {"SLIME_ACCELERATOR": "a"}
        assert selector_of(environment, a={"is_available": None}, b={"priority": 9}).get().name == "a"
        absent = {"factory": Factory(complete("a", available=False)), "is_available": None}
        with pytest.raises(AcceleratorUnavailableError, match=r"'a' \(requested by SLIME_ACCELERATOR='a'\)"):
            selector_of(environment, a=absent, b={}).get()


class TestRequestsThatCannotBeMet:
    @pytest.mark.parametrize("environment", [{"SLIME_ACCELERATOR": "bad"}, {"VENDOR": "x"}])
    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"is_available": no}, "its probe says False"),
            ({"is_available": lambda: Availability(False, "the driver is missing")}, "the driver is missing"),
            ({"is_available": Factory(OSError("ioctl"))}, "its probe raised OSError: ioctl"),
            ({"is_available": "surely_absent_module:probe"}, "surely_absent_module"),
            (
                {"factory": Factory(ModuleNotFoundError("no module 'dep'", name="dep"))},
                "factory raised ModuleNotFoundError: no module 'dep'",
            ),
            ({"factory": Factory(complete("bad", available=False))}, "StandIn.is_available() says False"),
            ({"factory": Factory(complete("bad", available=OSError("gone")))}, "StandIn.is_available() raised OSError: gone"),
            ({"bootstrap": Factory(OSError("no patch"))}, "bootstrap raised"),
        ],
    )
    def test_name_reason_and_remedy_and_no_fallback(
        self, environment: dict[str, str], options: dict[str, Any], reason: str
    ) -> None:
        spare = Factory(complete("spare"))
        if "bootstrap" in options:
            options = {"bootstrap": lambda _: Factory(OSError("no patch"))()}
        bad = {"request_variables": ("VENDOR",), "remedy": "Buy the device.", **options}
        selector = selector_of(environment, bad=bad, spare={"factory": spare, "priority": 900})
        for ask in (selector.get, selector.initialize, selector.get):
            with pytest.raises(AcceleratorUnavailableError) as refusal:
                ask()
            text = str(refusal.value)
            (variable, value), *_ = environment.items()
            assert all(part in text for part in ("'bad'", f"{variable}={value!r}", reason, "Remedy: Buy the device; unset"))
        assert spare.calls == 0

    def test_the_cause_is_chained(self) -> None:
        cause = OSError("ioctl")
        with pytest.raises(AcceleratorUnavailableError) as refusal:
            selector_of({"SLIME_ACCELERATOR": "a"}, a={"is_available": Factory(cause)}).get()
        assert refusal.value.__cause__ is cause

    @pytest.mark.parametrize("name", ["nosuch", "none", "a,b"])
    def test_unknown_names(self, name: str) -> None:
        selector = selector_of({"SLIME_ACCELERATOR": name}, b={}, a={})
        for ask in (selector.get, selector.initialize):
            with pytest.raises(UnknownAcceleratorError, match=f"{name!r}; registered: a, b"):
                ask()

    def test_b45_an_entry_point_that_cannot_be_loaded(self) -> None:
        broken = EntryPoint("broken", "surely_absent_dependency.plugin:PLUGIN", ENTRY_POINT_GROUP)
        registry = AcceleratorRegistry(entry_points=lambda: [broken])
        registry.register("spare", Factory(complete("spare")), yes)
        with pytest.raises(AcceleratorUnavailableError, match="surely_absent_dependency"):
            AcceleratorSelector(registry, {"SLIME_ACCELERATOR": "broken"}).get()
        assert AcceleratorSelector(registry, {}).get().name == "spare"

    def test_a_chosen_backend_that_fails_is_not_replaced_by_the_next(self) -> None:
        selector = selector_of(a={"priority": 9, "factory": Factory(OSError("firmware"))}, b={})
        with pytest.raises(AcceleratorUnavailableError, match=r"'a' \(chosen automatically\) cannot be used.*firmware.*mend it"):
            selector.get()


class TestNothingUsable:
    def test_each_backend_with_its_reason(self) -> None:
        broken = EntryPoint("broken", "surely_absent_dependency:PLUGIN", ENTRY_POINT_GROUP)
        registry = AcceleratorRegistry(entry_points=lambda: [broken])
        registry.register("raising", Factory(), Factory(OSError("ioctl")))
        registry.register("denying", Factory(), no)
        registry.register("explaining", Factory(), lambda: Availability(False, "no driver"))
        registry.register("unprobed", Factory(OSError("firmware")))
        registry.register("half", Factory(object()))
        selector = AcceleratorSelector(registry, {})
        with pytest.raises(NoAcceleratorError) as refusal:
            selector.get()
        lines = {line.split(":")[0].strip(): line for line in str(refusal.value).splitlines()[1:-1]}
        reasons = {
            "raising": "OSError: ioctl", "denying": "says False", "explaining": "no driver", "unprobed": "OSError: firmware",
            "half": "synchronize", "broken": "surely_absent_dependency",
        }  # fmt: skip
        assert list(lines) == sorted(reasons)
        assert all(reason in lines[name] for name, reason in reasons.items())
        assert "SLIME_ACCELERATOR" in str(refusal.value)
        assert selector.initialize() is None

    def test_nothing_registered(self) -> None:
        with pytest.raises(NoAcceleratorError, match="nothing is registered"):
            selector_of().get()

    def test_initialize_answers_with_what_there_is(self) -> None:
        selector = selector_of(a={})
        assert selector.initialize() is selector.get()


class TestBootstrap:
    def test_on_request_before_availability(self) -> None:
        calls: list[str] = []
        environment = {"SLIME_ACCELERATOR": "a"}

        def probe() -> bool:
            calls.append("probe")
            return "bootstrap" in calls

        def bootstrap(seen: Any) -> None:
            assert seen is not None
            assert seen["SLIME_ACCELERATOR"] == "a"
            calls.append("bootstrap")

        selector_of(environment, a={"is_available": probe, "bootstrap": bootstrap}).get()
        assert calls == ["bootstrap", "probe"]

    def test_automatic_after_the_choice_and_never_for_another(self) -> None:
        calls: list[str] = []

        def recorder(name: str, answer: Any = None) -> Callable[..., Any]:
            def record(*_: Any) -> Any:
                calls.append(name)
                return answer

            return record

        selector = selector_of(
            first={"is_available": recorder("first probe", False), "bootstrap": recorder("first bootstrap"), "priority": 9},
            second={
                "is_available": recorder("second probe", True),
                "bootstrap": recorder("second bootstrap"),
                "factory": recorder("second factory", complete("second")),
            },
            third={"is_available": recorder("third probe", True), "bootstrap": recorder("third bootstrap"), "priority": -1},
        )
        selector.get()
        assert calls == ["first probe", "second probe", "second bootstrap", "second factory"]

    def test_errors_of_this_library_pass_unchanged(self) -> None:
        error = VendorPatchError("musa_patch needs x")
        with pytest.raises(VendorPatchError) as refusal:
            selector_of(a={"bootstrap": lambda _: Factory(error)()}).get()
        assert refusal.value is error


class TestInterface:
    @pytest.mark.parametrize("environment", [{}, {"SLIME_ACCELERATOR": "a"}])
    @pytest.mark.parametrize(
        ("product", "said"),
        [(object(), "missing"), (complete_class(), "give an instance"), ("musa", "missing")],
    )
    def test_a_product_that_is_no_accelerator(self, environment: dict[str, str], product: Any, said: str) -> None:
        with pytest.raises(IncompleteAcceleratorError, match=rf"'a' \(registered by the program\).*{said}"):
            selector_of(environment, a={"factory": Factory(product)}).get()

    def test_none_is_not_returned(self) -> None:
        with pytest.raises(TypeError, match="None is not an Accelerator"):
            selector_of(a={"factory": lambda: None}).get()

    def test_b54_a_referenced_class_is_refused_with_every_lack(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lacking = complete_class(without=("synchronize", "Event", "name"))
        monkeypatch.setattr(probes, "Lacking", lacking, raising=False)
        with pytest.raises(IncompleteAcceleratorError) as refusal:
            selector_of({"SLIME_ACCELERATOR": "a"}, a={"factory": "harness.accelerator.probes:Lacking"}).get()
        assert refusal.value.missing == ("Event", "name", "synchronize")


class TestSet:
    def test_set_wins_over_requests(self) -> None:
        selector, chosen = selector_of({"SLIME_ACCELERATOR": "nosuch"}), complete("chosen")
        selector.set(chosen)
        assert selector.get() is chosen
        selector.reset()
        with pytest.raises(UnknownAcceleratorError):
            selector.get()

    @pytest.mark.parametrize("value", [None, "musa", object(), complete_class(), 3])
    def test_what_is_no_accelerator(self, value: Any) -> None:
        selector = selector_of(a={})
        before = selector.get()
        with pytest.raises(TypeError, match="set_accelerator"):
            selector.set(value)
        assert selector.get() is before

    @pytest.mark.parametrize("available", [False, None, OSError("gone")])
    def test_what_is_unavailable(self, available: Any) -> None:
        selector = selector_of(a={})
        with pytest.raises(AcceleratorUnavailableError, match="'b' cannot be used"):
            selector.set(complete("b", available=available))
        assert selector.get().name == "a"


class TestConcurrencyAndRecovery:
    def test_one_factory_call_and_one_bootstrap_for_many_threads(self) -> None:
        count = 16
        barrier, entered = threading.Barrier(count), threading.Event()
        factory, bootstraps = Factory(complete("a")), []

        def slow_probe() -> bool:
            # Give the other threads every chance to come in too: only a lock keeps them out.
            entered.wait(0.05)
            return True

        selector = selector_of(a={"factory": factory, "is_available": slow_probe, "bootstrap": lambda _: bootstraps.append(1)})
        got: list[Any] = []

        def ask() -> None:
            barrier.wait(10)
            got.append(selector.get())

        threads = [threading.Thread(target=ask) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(got) == count
        assert {id(accelerator) for accelerator in got} == {id(got[0])}
        assert (factory.calls, len(bootstraps)) == (1, 1)

    @pytest.mark.parametrize("error", [OSError("once"), KeyboardInterrupt()])
    @pytest.mark.parametrize("part", ["factory", "is_available", "bootstrap"])
    def test_a_failed_selection_leaves_nothing_behind(self, part: str, error: BaseException) -> None:
        failing = [error]
        good = complete("a")

        def flaky(*_: Any) -> Any:
            if failing:
                raise failing.pop()
            return good

        selector = selector_of({"SLIME_ACCELERATOR": "a"}, a={"factory": lambda: good, part: flaky})
        with pytest.raises((AcceleratorUnavailableError, KeyboardInterrupt)):
            selector.get()
        assert selector.get() is good

    @pytest.mark.parametrize("part", ["factory", "is_available", "bootstrap"])
    @pytest.mark.parametrize("method", ["get", "reset", "initialize"])
    def test_reentrance_is_refused_and_heals(self, part: str, method: str) -> None:
        good = complete("a")
        inside: list[str] = ["first"]

        def reentrant(*_: Any) -> Any:
            if inside:
                inside.pop()
                getattr(selector, method)()
            return good

        selector = selector_of({"SLIME_ACCELERATOR": "a"}, a={"factory": lambda: good, part: reentrant})
        with pytest.raises((AcceleratorUnavailableError, ReentrantSelectionError), match="selection going on"):
            selector.get()
        assert selector.get() is good

    def test_the_environment_of_the_process_is_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registry = selector_of(a={"priority": 1}, b={}).registry
        monkeypatch.setenv("SLIME_ACCELERATOR", "b")
        assert AcceleratorSelector(registry).get().name == "b"


class TestPublicFunctions:
    @pytest.fixture(autouse=True)
    def own_registry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registry = AcceleratorRegistry()
        monkeypatch.setattr(default, "REGISTRY", registry)
        monkeypatch.setattr(default, "SELECTOR", AcceleratorSelector(registry, {}))

    def test_they_act_on_one_registry_and_selector(self) -> None:
        assert public.initialize_accelerator() is None
        public.register_accelerator(" Mine ", lambda: complete("mine"), yes, 3, ("mineccl",))
        assert public.registered_accelerators() == ("mine",)
        first = public.get_accelerator()
        assert first.name == "mine"
        assert public.initialize_accelerator() is first
        other = complete("other")
        public.set_accelerator(other)
        assert public.get_accelerator() is other
        public.reset_accelerator()
        public.register_accelerator("mine", lambda: complete("again"), replace=True)
        assert public.get_accelerator().name == "again"
        public.unregister_accelerator("mine")
        assert public.registered_accelerators() == ()

    def test_every_public_name_is_there(self) -> None:
        assert all(hasattr(public, name) for name in public.__all__)
