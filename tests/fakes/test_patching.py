"""Reversible patches, and the frame of the fault catalogue."""

from __future__ import annotations

import pytest

from fakes.faults import CATALOGUE, Fault, assemble
from fakes.patching import Patches


class Base:
    inherited = "base"

    def method(self) -> str:
        return "method"


class Owner(Base):
    own = "own"


def test_undo_restores_the_very_objects_in_reverse_order() -> None:
    mapping = {"kept": (kept := object())}
    original = Owner.__dict__["own"]
    with Patches() as patches:
        patches.set(Owner, "own", "first")
        patches.set(Owner, "own", "second")
        patches.set(Owner, "inherited", "changed")
        patches.set(Owner, "method", lambda self: "patched")
        patches.set(Owner, "new", 1)
        patches.set_item(mapping, "kept", None)
        patches.set_item(mapping, "new", None)
        undone: list[str] = []
        patches.on_undo(lambda: undone.append(Owner.own))
        assert (Owner.own, Owner.inherited, Owner().method(), Owner.new) == ("second", "changed", "patched", 1)
    assert undone == ["second"]
    assert Owner.__dict__["own"] is original
    assert not {"inherited", "method", "new"} & set(vars(Owner))
    assert mapping == {"kept": kept}
    patches.undo()


def test_undo_runs_after_an_exception_and_tolerates_deletion() -> None:
    with pytest.raises(KeyError), Patches() as patches:
        patches.set(Owner, "new", 1)
        del Owner.new
        raise KeyError
    assert not hasattr(Owner, "new")


def test_static_and_class_methods_come_back_as_they_were() -> None:
    class Kinds:
        @staticmethod
        def static() -> int:
            return 1

        @classmethod
        def of_class(cls) -> type:
            return cls

    before = dict(vars(Kinds))
    with Patches() as patches:
        patches.set(Kinds, "static", staticmethod(lambda: 2))
        patches.set(Kinds, "of_class", classmethod(lambda cls: None))
        assert Kinds.static() == 2
    assert dict(vars(Kinds)) == before


def test_what_cannot_be_set_is_not_recorded() -> None:
    patches = Patches()
    with pytest.raises((AttributeError, TypeError)):
        patches.set(int, "real", 3)
    patches.undo()


def test_the_catalogue_refuses_doubles_and_faults_of_nothing() -> None:
    def fault(identity: str, *clauses: str) -> Fault:
        return Fault(identity, clauses, "summary", "derived", lambda patches: None)

    assert list(assemble((fault("a", "DEV-1"),), (fault("b", "DEV-2"),))) == ["a", "b"]
    with pytest.raises(ValueError, match="'a'"):
        assemble((fault("a", "DEV-1"), fault("a", "DEV-1")))
    with pytest.raises(ValueError, match="names no clause"):
        assemble((fault("a"),))
    assert all(identity == entry.id for identity, entry in CATALOGUE.items())
