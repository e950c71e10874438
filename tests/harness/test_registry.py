"""AcceleratorRegistry, its registrations, its entry points, and the list of what a backend lacks."""

from __future__ import annotations

import sys
import threading
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from conformance.stand_ins import Factory, complete, complete_class
from harness.accelerator import interface
from harness.accelerator.contract import Accelerator
from harness.accelerator.registration import AcceleratorPlugin, Registration, resolve_reference
from harness.accelerator.registry import ENTRY_POINT_GROUP, AcceleratorRegistry, installed_entry_points, missing_interface
from harness.errors import (
    AcceleratorUnavailableError,
    DuplicateAcceleratorError,
    IncompleteAcceleratorError,
    InvalidAcceleratorNameError,
    InvalidRegistrationError,
    UnknownAcceleratorError,
)


def entry_point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, ENTRY_POINT_GROUP)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write importable modules; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written: list[str] = []

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        written.append(name)
        sys.modules.pop(name, None)

    yield write
    for name in written:
        sys.modules.pop(name, None)


class TestNames:
    @pytest.mark.parametrize("name", ["musa", " MUSA ", "\tMusa\n"])
    def test_folded(self, name: str) -> None:
        registry = AcceleratorRegistry()
        registry.register(name, Factory())
        assert registry.names() == ("musa",)
        assert registry.get("  mUsA").name == "musa"

    @pytest.mark.parametrize("name", ["", "  ", "auto", " AUTO ", "none", "None\n", None, 3, b"musa"])
    def test_refused(self, name: Any) -> None:
        registry = AcceleratorRegistry()
        with pytest.raises(InvalidAcceleratorNameError, match=r"name"):
            registry.register(name, Factory())
        assert registry.names() == ()

    def test_unknown_names_list_the_known_ones_sorted(self) -> None:
        registry = AcceleratorRegistry()
        with pytest.raises(UnknownAcceleratorError, match="registered: none"):
            registry.get("x")
        for name in ("zebra", "ant"):
            registry.register(name, Factory())
        with pytest.raises(UnknownAcceleratorError, match=r"unknown accelerator 'x'; registered: ant, zebra\."):
            registry.get("x")
        for odd in (None, 3, "auto", ""):
            with pytest.raises(UnknownAcceleratorError):
                registry.get(odd)  # type: ignore[arg-type]


class TestRegistering:
    def test_duplicate_is_refused_and_changes_nothing(self) -> None:
        registry = AcceleratorRegistry()
        first, second = Factory(), Factory()
        registry.register("a", first)
        with pytest.raises(
            DuplicateAcceleratorError, match=r"'a' is there already \(registered by the program\); pass replace=True"
        ):
            registry.register(" A ", second)
        assert registry.get("a").factory is first
        registry.register("A", second, replace=True)
        assert registry.get("a").factory is second

    def test_unregister(self) -> None:
        registry = AcceleratorRegistry()
        registry.register("a", Factory())
        registry.unregister(" A")
        assert registry.names() == ()
        with pytest.raises(UnknownAcceleratorError):
            registry.unregister("a")

    def test_calls_and_imports_nothing(self, modules: Any) -> None:
        modules("lazy_backend_module", "raise AssertionError('imported')")
        registry = AcceleratorRegistry()
        factory = Factory()
        registry.register("called", factory, is_available=factory)
        registry.register(
            "imported", "lazy_backend_module:A", is_available="lazy_backend_module:probe", bootstrap="lazy_backend_module:b"
        )
        registry.names()
        registry.registrations()
        registry.get("imported")
        assert factory.calls == 0
        assert "lazy_backend_module" not in sys.modules

    @pytest.mark.parametrize(
        ("part", "value"),
        [
            ("factory", None),
            ("factory", "no_colon"),
            ("factory", ":attribute"),
            ("factory", "module:"),
            ("factory", 3),
            ("is_available", "x y:z"),
            ("is_available", True),
            ("bootstrap", 1),
            ("priority", True),
            ("priority", 1.5),
            ("priority", "9"),
            ("communication_backends", "nccl"),
            ("communication_backends", None),
            ("communication_backends", [""]),
            ("communication_backends", [3]),
            ("request_variables", "A_VARIABLE"),
        ],
    )
    def test_wrong_parts_are_named(self, part: str, value: Any) -> None:
        registry = AcceleratorRegistry()
        arguments = {"factory": Factory(), "is_available": Factory(True), part: value}
        with pytest.raises(InvalidRegistrationError, match=rf"accelerator 'a': {part}"):
            registry.register("A", **arguments)
        assert registry.names() == ()

    def test_a_bootstrap_needs_a_probe(self) -> None:
        with pytest.raises(InvalidRegistrationError, match="needs an is_available probe"):
            AcceleratorRegistry().register("a", Factory(), bootstrap=lambda environment: None)

    def test_order_is_priority_then_name(self) -> None:
        registry = AcceleratorRegistry()
        for name, priority in (("b", 1), ("c", 5), ("a", 1), ("d", -1)):
            registry.register(name, Factory(), priority=priority, communication_backends=["x"])  # type: ignore[arg-type]
        assert [registration.name for registration in registry.registrations()] == ["c", "a", "b", "d"]
        assert registry.get("a").communication_backends == ("x",)


class TestInterface:
    def test_complete(self) -> None:
        assert missing_interface(complete_class()) == missing_interface(complete()) == ()

    @pytest.mark.parametrize("without", [("synchronize",), ("Stream", "name", "empty_cache"), ("visible_devices_grammar", "probe")])
    def test_exactly_what_is_missing(self, without: tuple[str, ...]) -> None:
        backend = complete_class(without=without)
        assert missing_interface(backend) == tuple(sorted(without))
        with pytest.raises(IncompleteAcceleratorError) as refusal:
            AcceleratorRegistry().register("lacking", backend)
        assert refusal.value.missing == tuple(sorted(without))
        assert all(name in str(refusal.value) for name in ("lacking", "StandIn", *without))

    def test_a_none_member_is_missing(self) -> None:
        backend = complete_class()
        backend.synchronize = None  # type: ignore[method-assign, assignment]
        assert missing_interface(backend) == ("synchronize",)

    def test_a_constructor_may_set_the_attributes(self) -> None:
        class SetLater(complete_class(without=("name", "synchronize"))):  # type: ignore[misc]
            def __init__(self, name: str | None = None) -> None:
                if name is not None:
                    self.name = name

            def synchronize(self, device: Any = None) -> None: ...

        assert missing_interface(SetLater) == missing_interface(SetLater("x")) == ()
        assert missing_interface(SetLater()) == ("name",)

    def test_duck_typed_classes_need_every_public_name(self) -> None:
        names = interface.interface_names()
        assert {"device_name", "supports", "post_import_torch", "name", "Stream"} <= set(names)
        assert missing_interface(type("Duck", (), {})) == missing_interface(object()) == names
        duck = type("Duck", (), {name: "here" for name in names if name != "supports"})
        assert missing_interface(duck) == ("supports",)
        AcceleratorRegistry().register("duck", type("Duck", (duck,), {"supports": len}))

    def test_properties_are_not_evaluated_and_proxies_are_asked(self) -> None:
        class Proxy:
            def __getattr__(self, name: str) -> Any:
                if name == "synchronize":
                    raise RuntimeError("the driver is away")
                return getattr(Accelerator, name, "here")

        assert missing_interface(Proxy()) == tuple(sorted({"synchronize", *Accelerator.__abstractmethods__}))
        touched = []
        backend = complete_class()
        backend.Stream = property(lambda self: touched.append("Stream"))  # type: ignore[misc, assignment]
        assert missing_interface(backend()) == ()  # type: ignore[abstract]
        assert touched == []


class TestEntryPoints:
    def test_plugin_and_bare_factory(self, modules: Any) -> None:
        modules(
            "published_backend",
            "from harness.accelerator.registration import AcceleratorPlugin\n"
            "def make(): ...\n"
            "PLUGIN = AcceleratorPlugin(factory=make, priority=7, communication_backends=('xccl',), remedy='buy one')\n",
        )
        registry = AcceleratorRegistry(
            entry_points=lambda: [
                entry_point("Second", "published_backend:make"),
                entry_point(" FIRST ", "published_backend:PLUGIN"),
            ]
        )
        assert registry.names() == ("first", "second")
        assert "published_backend" not in sys.modules
        first, second = registry.registrations()
        assert (first.name, first.priority, first.communication_backends, first.remedy) == ("first", 7, ("xccl",), "buy one")
        assert "published_backend:PLUGIN" in first.origin
        assert (second.name, second.priority, second.is_available) == ("second", 0, None)
        assert registry.get("first") is first
        assert registry.entry_point_failures() == {}

    def test_the_metadata_is_read_once_and_not_at_construction(self) -> None:
        reads: list[int] = []

        def read() -> list[EntryPoint]:
            reads.append(1)
            return []

        registry = AcceleratorRegistry(entry_points=read)
        assert reads == []
        registry.names()
        registry.names()
        assert reads == [1]

    def test_a_failure_is_named_does_not_hide_the_others_and_is_tried_again(self, modules: Any) -> None:
        modules("broken_backend", "import surely_absent_dependency")
        modules("sound_backend", "def make(): ...")
        registry = AcceleratorRegistry(
            entry_points=lambda: [
                entry_point("broken", "broken_backend:make"),
                entry_point("sound", "sound_backend:make"),
                entry_point("untidy", "sound_backend:nothing_of_that_name"),
                entry_point("wrong", "sound_backend:__name__"),
            ]
        )
        assert [registration.name for registration in registry.registrations()] == ["sound"]
        failures = registry.entry_point_failures()
        assert set(failures) == {"broken", "untidy", "wrong"}
        assert isinstance(failures["broken"], ModuleNotFoundError)
        assert isinstance(failures["untidy"], AttributeError)
        assert isinstance(failures["wrong"], InvalidRegistrationError)
        with pytest.raises(
            AcceleratorUnavailableError, match=r"'broken' cannot be loaded.*broken_backend:make.*surely_absent_dependency"
        ) as refusal:
            registry.get("broken")
        assert isinstance(refusal.value.__cause__, ModuleNotFoundError)
        assert registry.find("broken") is registry.find("nosuch") is None
        modules("broken_backend", "def make(): ...")
        assert registry.get("broken").name == "broken"
        assert registry.find(" BROKEN ") is registry.get("broken")
        assert set(registry.entry_point_failures()) == {"untidy", "wrong"}
        registry.unregister("untidy")
        registry.register("wrong", Factory(), replace=True)
        assert registry.entry_point_failures() == {}

    def test_an_incomplete_class_is_a_failure(self, modules: Any) -> None:
        modules("incomplete_backend", "from harness.accelerator import Accelerator\nclass Half(Accelerator):\n    name = 'half'\n")
        registry = AcceleratorRegistry(entry_points=lambda: [entry_point("half", "incomplete_backend:Half")])
        assert registry.registrations() == ()
        failure = registry.entry_point_failures()["half"]
        assert isinstance(failure, IncompleteAcceleratorError)
        assert set(failure.missing) == {*Accelerator.__abstractmethods__, *Accelerator.__annotations__} - {"name"}

    def test_taken_and_reserved_names_are_failures(self, modules: Any) -> None:
        modules("rival_backend", "def make(): ...")
        registry = AcceleratorRegistry(
            [Registration(name="musa", factory="a:b", origin="built in")],
            entry_points=lambda: [
                entry_point("MUSA", "rival_backend:make"),
                entry_point("auto", "rival_backend:make"),
                entry_point("twice", "rival_backend:z"),
                entry_point("twice", "rival_backend:make"),
            ],
        )
        assert registry.names() == ("musa", "twice")
        kinds = {name: type(error) for name, error in registry.entry_point_failures().items()}
        assert kinds == {
            "entry point 'MUSA = rival_backend:make'": DuplicateAcceleratorError,
            "entry point 'auto = rival_backend:make'": InvalidAcceleratorNameError,
            "entry point 'twice = rival_backend:z'": DuplicateAcceleratorError,
        }
        assert registry.get("twice").origin == "published by entry point 'twice = rival_backend:make'"
        assert registry.get("musa").origin == "built in"
        with pytest.raises(DuplicateAcceleratorError, match="published by"):
            AcceleratorRegistry(entry_points=lambda: [entry_point("a", "rival_backend:make")]).register("a", Factory())

    def test_unreadable_metadata_hides_nothing(self) -> None:
        answers: list[Any] = [OSError("disk"), []]

        def read() -> list[EntryPoint]:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        registry = AcceleratorRegistry(entry_points=read)
        registry.add(Registration(name="a", factory=Factory()))
        assert registry.names() == ("a",)
        assert registry.entry_point_failures() == {}
        damaged = AcceleratorRegistry(entry_points=lambda: (_ for _ in ()).throw(OSError("disk")))
        damaged.register("a", Factory())
        assert damaged.names() == ("a",)

    def test_a_module_that_registers_itself_while_it_is_loaded(self, modules: Any) -> None:
        modules("registering_backend", "import holder\nholder.registry.register('more', print)\ndef make(): ...")
        modules("holder", "registry = None")
        registry = AcceleratorRegistry(entry_points=lambda: [entry_point("published", "registering_backend:make")])
        resolve_reference("holder:__dict__")["registry"] = registry
        assert registry.get("published").name == "published"
        assert registry.names() == ("more", "published")

    def test_a_replacement_made_meanwhile_stays(self, modules: Any) -> None:
        modules("holder", "registry = None")
        modules(
            "replacing_backend",
            "import holder\nholder.registry.register('published', print, replace=True)\ndef make(): ...",
        )
        registry = AcceleratorRegistry(entry_points=lambda: [entry_point("published", "replacing_backend:make")])
        resolve_reference("holder:__dict__")["registry"] = registry
        assert registry.get("published").factory is print

    def test_threads_load_one_registration(self, modules: Any) -> None:
        modules("threaded_backend", "def make(): ...")
        registry = AcceleratorRegistry(entry_points=lambda: [entry_point("a", "threaded_backend:make")])
        barrier = threading.Barrier(8)
        got: list[Registration] = []

        def load() -> None:
            barrier.wait(10)
            got.append(registry.get("a"))

        threads = [threading.Thread(target=load) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(got) == 8
        assert all(registration == got[0] for registration in got)

    def test_installed_distributions_are_searched(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        information = tmp_path / "vendor-1.5.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.5\n")
        (information / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nvendor = vendor_module_that_is_absent:PLUGIN\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        registry = AcceleratorRegistry(entry_points=installed_entry_points)
        assert "vendor" in registry.names()
        with pytest.raises(AcceleratorUnavailableError, match=r"of vendor 1\.5 raised ModuleNotFoundError"):
            registry.get("vendor")


def test_references() -> None:
    assert resolve_reference("os.path:join.__name__") == "join"
    assert resolve_reference(len) is len
    with pytest.raises(AttributeError):
        resolve_reference("os:nothing_of_that_name")


def test_plugin_defaults() -> None:
    plugin = AcceleratorPlugin(factory=complete)
    assert (plugin.is_available, plugin.priority, plugin.communication_backends, plugin.request_variables, plugin.bootstrap) == (
        None, 0, (), (), None,
    )  # fmt: skip
