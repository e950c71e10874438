"""VendorPatch: once a process, clean after a failure, clear about what was wrong."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.accelerator import musa_patch
from harness.accelerator.musa_patch import VendorPatch
from harness.errors import ReentrantSelectionError, VendorPatchError

MODULE = "vendor_patch_under_test"
VARIABLE = "VENDOR_PATCH_PATH"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for the patch; everything imported from it is forgotten afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("vendor_patch", "journal_of_patch")):
            del sys.modules[name]


def write(folder: Path, text: str, module: str = MODULE) -> dict[str, str]:
    """Write the patch; it records its import in `journal_of_patch.entries`. Returns the environment that finds it."""
    (folder / "journal_of_patch.py").write_text("entries = []\n")
    package = folder / module
    package.mkdir(exist_ok=True)
    # A new size each time, since compiled files are told apart by time stamp and size.
    write.counter += 1  # type: ignore[attr-defined]
    padding = "#" * write.counter  # type: ignore[attr-defined]
    (package / "__init__.py").write_text(f"import journal_of_patch\njournal_of_patch.entries.append('import')\n{text}\n{padding}\n")
    (package / "part.py").write_text("")
    return {VARIABLE: str(folder)}


write.counter = 0  # type: ignore[attr-defined]
CALLBACK = "def patch_after_import_torch():\n    journal_of_patch.entries.append('callback')\n"


def new_patch(module: str = MODULE) -> VendorPatch:
    return VendorPatch(module, backend="vendor", path_variable=VARIABLE, callback="patch_after_import_torch")


def journal() -> list[str]:
    return list(sys.modules["journal_of_patch"].entries)


def test_imported_and_called_once(folder: Path) -> None:
    environment = write(folder, CALLBACK)
    patch = new_patch()
    before = list(sys.path)
    assert patch.apply(environment)
    assert patch.apply(environment)
    assert journal() == ["import", "callback"]
    assert sys.path == [*before, str(folder)]


def test_the_callback_is_optional(folder: Path) -> None:
    assert new_patch().apply(write(folder, ""))
    assert journal() == ["import"]


def test_a_folder_on_the_path_already_is_not_added(folder: Path) -> None:
    environment = write(folder, "")
    sys.path.append(str(folder))
    before = list(sys.path)
    assert new_patch().apply(environment)
    assert sys.path == before


def test_a_module_that_is_imported_already_is_used(folder: Path) -> None:
    environment = write(folder, CALLBACK)
    sys.path.append(str(folder))
    __import__(MODULE)
    assert new_patch().apply(environment)
    assert journal() == ["import", "callback"]


@pytest.mark.parametrize(
    ("value", "said"), [(None, "not installed"), ("  ", "not installed"), ("/nowhere/at/all", "/nowhere/at/all")]
)
def test_absent_is_a_warning_and_is_looked_for_again(
    folder: Path, caplog: pytest.LogCaptureFixture, value: str | None, said: str
) -> None:
    patch, path = new_patch(), list(sys.path)
    with caplog.at_level(logging.WARNING):
        assert not patch.apply({} if value is None else {VARIABLE: value})
        assert not patch.apply({} if value is None else {VARIABLE: value})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert all(part in record.getMessage() for part in ("'vendor'", MODULE, said, VARIABLE))
    assert sys.path == path
    assert patch.apply(write(folder, ""))


def test_a_missing_dependency_is_named(folder: Path) -> None:
    patch, path = new_patch(), list(sys.path)
    environment = write(folder, "import surely_absent_dependency")
    with pytest.raises(
        VendorPatchError, match=rf"'vendor': {MODULE} needs the module 'surely_absent_dependency'.*Install it"
    ) as refusal:
        patch.apply(environment)
    assert isinstance(refusal.value.__cause__, ModuleNotFoundError)
    assert sys.path == path
    assert MODULE not in sys.modules


def test_a_missing_part_of_the_patch_itself_is_no_absence(folder: Path) -> None:
    with pytest.raises(VendorPatchError, match=rf"'{MODULE}\.nothing'"):
        new_patch().apply(write(folder, "from . import part\nimport vendor_patch_under_test.nothing"))
    assert f"{MODULE}.part" not in sys.modules


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("raise OSError('no driver')", OSError),
        ("def", SyntaxError),
        ("raise SystemExit(3)", SystemExit),
        ("patch_after_import_torch = 3", TypeError),
        ("def patch_after_import_torch():\n    raise KeyError('x')", KeyError),
        ("def patch_after_import_torch():\n    import surely_absent_dependency", ModuleNotFoundError),
    ],
)
def test_any_failure_is_chained_cleaned_up_and_tried_again(folder: Path, text: str, cause: type[BaseException]) -> None:
    patch, path = new_patch(), list(sys.path)
    environment = write(folder, f"from . import part\n{text}")
    with pytest.raises(VendorPatchError, match="'vendor'") as refusal:
        patch.apply(environment)
    assert isinstance(refusal.value.__cause__, cause)
    assert sys.path == path
    assert not [name for name in sys.modules if name.startswith(MODULE)]
    assert patch.apply(write(folder, CALLBACK))
    assert journal()[-2:] == ["import", "callback"]


def test_an_interruption_is_cleaned_up_and_passed_on(folder: Path) -> None:
    patch, path = new_patch(), list(sys.path)
    with pytest.raises(KeyboardInterrupt):
        patch.apply(write(folder, "raise KeyboardInterrupt"))
    assert sys.path == path
    assert patch.apply(write(folder, ""))


def test_a_module_of_a_similar_name_stays(folder: Path) -> None:
    (folder / "vendor_patch_under_test_utilities.py").write_text("")
    with pytest.raises(VendorPatchError):
        new_patch().apply(write(folder, "import vendor_patch_under_test_utilities\nraise OSError"))
    assert "vendor_patch_under_test_utilities" in sys.modules


def test_the_patch_asking_for_itself_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = new_patch()
    monkeypatch.setattr(musa_patch, "MUSA_PATCH", patch)
    with pytest.raises(VendorPatchError, match="while it is being imported") as refusal:
        musa_patch.apply_musa_patch(
            write(folder, "from harness.accelerator.musa_patch import apply_musa_patch\napply_musa_patch()")
        )
    assert isinstance(refusal.value.__cause__, ReentrantSelectionError)
    assert musa_patch.apply_musa_patch(write(folder, ""))


def test_threads_import_once(folder: Path) -> None:
    environment, patch, barrier = write(folder, CALLBACK), new_patch(), threading.Barrier(8)
    answers: list[bool] = []

    def apply() -> None:
        barrier.wait(10)
        answers.append(patch.apply(environment))

    threads = [threading.Thread(target=apply) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [True] * 8
    assert journal() == ["import", "callback"]


def test_the_process_environment_is_the_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in write(folder, "").items():
        monkeypatch.setenv(name, value)
    assert new_patch().apply()


def test_musa() -> None:
    patch = musa_patch.MUSA_PATCH
    assert (patch.module, patch.backend, patch.path_variable, patch.callback) == (
        "musa_patch", "musa", "MUSA_PATCH_PATH", "patch_after_import_torch",
    )  # fmt: skip
