"""What names a run, and how far it has come."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.accelerator.visible_devices import GRAMMARS
from reports import backend_facts, facts
from reports.model import DeviceFacts
from reports.progress import Progress


def git(folder: Path, *arguments: str) -> None:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env={**os.environ, **identity})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("conformance", "fakes", "harness", "reports"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text("x = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_a_checkout_is_clean_until_a_file_of_the_suite_differs(checkout: Path) -> None:
    commit, tree, changed = facts.tree_state(checkout)
    assert (len(commit), tree, changed) == (40, "clean", [])
    (checkout / "notes.txt").touch()
    assert facts.tree_state(checkout)[1] == "clean"
    (checkout / "harness" / "new.py").touch()
    assert facts.tree_state(checkout)[1:] == ("dirty", ["harness/new.py"])
    (checkout / "harness" / "new.py").unlink()
    (checkout / "fakes" / "module.py").write_text("x = 2\n")
    assert facts.tree_state(checkout)[1:] == ("dirty", ["fakes/module.py"])


@pytest.mark.parametrize("name", ["conftest.py", "pyproject.toml", "pytest.ini", "tox.ini"])
def test_what_pytest_reads_in_a_checkout_is_part_of_the_suite(name: str, checkout: Path) -> None:
    (checkout / name).touch()
    assert facts.tree_state(checkout)[1:] == ("dirty", [name])


def test_a_conftest_of_somebody_else_is_a_change_of_the_suite(tmp_path: Path) -> None:
    own = Path(facts.__file__).parents[1] / "conformance" / "conftest.py"
    usual = facts.suite_facts([own])
    assert usual == facts.suite_facts()
    changed = facts.suite_facts([own, tmp_path / "conftest.py", own.parents[1] / "conftest.py"])
    assert changed.tree == "dirty"
    assert set(changed.changed) - set(usual.changed) == {f"{tmp_path.name}/conftest.py", "conftest.py"}


def test_outside_version_control_and_packaging_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    assert facts.tree_state(tmp_path) == ("", "unknown", [])


def test_inside_another_checkout_its_commit_is_not_ours(checkout: Path) -> None:
    inner = checkout / "site-packages"
    inner.mkdir()
    assert facts.tree_state(inner) == ("", "unknown", [])


def test_an_installed_suite_is_compared_with_what_the_installer_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harness").mkdir()
    module = tmp_path / "harness" / "module.py"
    module.write_text("x = 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
    information = tmp_path / "accelerator_conformance-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: accelerator-conformance\nVersion: 1.0\n")
    (information / "RECORD").write_text(f"harness/module.py,sha256={digest},6\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert facts.tree_state(tmp_path) == ("", "clean", [])
    module.write_text("x = 2\n")
    assert facts.tree_state(tmp_path) == ("", "dirty", ["harness/module.py"])
    module.write_text("x = 1\n")
    (tmp_path / "harness" / "other.py").touch()
    assert facts.tree_state(tmp_path) == ("", "dirty", ["harness/other.py"])


def test_a_folders_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    def digest(**files: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        return facts.folder_digest(folder)

    assert digest(a="1", b="2") == digest(b="2", a="1")
    assert len({digest(a="1", b="2"), digest(a="12", b=""), digest(a="2", b="1"), digest(a="1", c="2"), digest()}) == 5


def test_every_variable_is_listed_and_who_decides() -> None:
    layers = facts.visible_devices_layers(
        GRAMMARS["rocm"], {"HIP_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "0,1", "MUSA_VISIBLE_DEVICES": "\udcff"}
    )
    found = {layer.variable: (layer.value, layer.decided) for layer in layers}
    assert found["HIP_VISIBLE_DEVICES"] == ("1", True)
    assert found["ROCR_VISIBLE_DEVICES"] == ("0,1", True)
    assert found["MUSA_VISIBLE_DEVICES"] == ("\\udcff", False)
    assert set(GRAMMARS["rocm"].variables) <= set(found)
    assert facts.visible_devices_layers(None, {}) == ()


def test_devices_are_told_as_far_as_their_properties_tell() -> None:
    class Accelerator:
        device_type = "nothing"

        def is_available(self) -> bool:
            return True

        def device_count(self) -> int:
            return 3

        def get_device_properties(self, index: int) -> Any:
            if index == 2:
                raise RuntimeError("lost")
            rich = {"uuid": "GPU-1", "pci_domain_id": 0, "pci_bus_id": 0x3B, "pci_device_id": 0}
            return SimpleNamespace(name="X100", total_memory=1 << 30, **(rich if index == 0 else {}))

    told = backend_facts.gather(Accelerator)
    assert told["devices"] == [
        {"index": 0, "name": "X100", "uuid": "GPU-1", "pci": "0000:3b:00.0", "memory": 1 << 30},
        {"index": 1, "name": "X100", "memory": 1 << 30},
        {"index": 2},
    ]
    assert [DeviceFacts(**device).index for device in told["devices"]] == [0, 1, 2]
    assert told["adapter"].endswith("Accelerator")
    assert told["capabilities"]
    assert all(fact["supported"] for fact in told["capabilities"]), "an adapter that cannot be asked denies nothing"


def test_progress_by_area_with_an_estimate() -> None:
    area_of = {f"f.py::test_{area}{number}": area for area in ("DEV", "STR") for number in range(4)}
    progress = Progress(area_of, now=100.0)
    progress.expect([*(name for name in area_of if name != "f.py::test_DEV0"), "f.py::test_DEV0[x]"])
    assert progress.line_if_due(1000.0) is None
    for name in ("f.py::test_DEV0[x]", "f.py::test_DEV1"):
        progress.reported(name, failed=name.endswith("1"))
    assert progress.line_if_due(129.0) is None
    assert progress.line_if_due(140.0) == "2 of 8 checks after 40 s, about 2 min 0 s left: DEV 2/4 (1 failed)"
    assert progress.line_if_due(141.0) is None
    progress.reported("f.py::test_STR0", failed=False)
    assert progress.line_if_due(7300.0) == "3 of 8 checks after 2 h 0 min, about 3 h 20 min left: DEV 2/4 (1 failed), STR 1/4"
