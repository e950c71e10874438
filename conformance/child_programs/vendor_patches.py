"""Selecting with a vendor's optional patch module of every kind (SEL-6 to SEL-9).

For: `conformance/test_selection_in_processes.py`. Each scenario takes the library's own MUSA registration (its request variables and its
bootstrap), with a probe and a factory that keep a journal, and a patch module of its own in a folder of its own, so that a `musa_patch`
that is really installed is neither imported nor in the way. Not for: the probes (`shims.py`).
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.child_main import ChildBackend

_JOURNAL = "conformance_patch_journal"
_THREADS = 8


class Scenario:
    """One selector over MUSA and a rival, and the folder that `MUSA_PATCH_PATH` names. `journal` has what happened, in order."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder = folder
        self.module = module
        self.environment: dict[str, str] = {}
        self.available = True
        self.answer: dict[str, Any] = {}
        self.journal: list[str] = []
        sys.modules[_JOURNAL] = self  # type: ignore[assignment]
        self.selector = self._selector()

    def note(self, entry: str) -> None:
        """Called by the patch module, the probe and the factory."""
        self.journal.append(entry)

    def write(self, text: str = "") -> None:
        """(Re)write the patch module, and have `MUSA_PATCH_PATH` name its folder."""
        source = f"import {_JOURNAL}\n{_JOURNAL}.note('patch')\n{text}\n"
        (self.folder / f"{self.module}.py").write_text(source)
        self.environment["MUSA_PATCH_PATH"] = str(self.folder)

    def select(self) -> str:
        """The name of what is selected, or the error with its cause."""
        try:
            return str(self.selector.get().name)
        except Exception as error:  # noqa: BLE001 - the check reads it
            cause = f" from {type(error.__cause__).__name__}" if error.__cause__ is not None else ""
            kind = "RuntimeError" if isinstance(error, RuntimeError) else type(error).__name__
            return f"{kind}{cause}: {error}"

    def _selector(self) -> Any:
        from conformance.stand_ins import complete
        from harness.accelerator import musa_patch
        from harness.accelerator.default import BUILTIN_REGISTRATIONS
        from harness.accelerator.registry import AcceleratorRegistry
        from harness.accelerator.selection import AcceleratorSelector

        patch = musa_patch.MUSA_PATCH
        musa_patch.MUSA_PATCH = musa_patch.VendorPatch(
            self.module, backend="musa", path_variable=patch.path_variable, callback=patch.callback
        )

        def probe() -> bool:
            self.note("probe")
            return self.available

        def factory() -> Any:
            self.note("factory")
            return complete("musa")

        (musa,) = (registration for registration in BUILTIN_REGISTRATIONS if registration.name == "musa")
        registry = AcceleratorRegistry([replace(musa, is_available=probe, factory=factory)])
        registry.register("rival", lambda: complete("rival"), lambda: True)
        return AcceleratorSelector(registry, self.environment)


def explicit_request(scenario: Scenario) -> None:
    """On a request the patch comes before the probe."""
    scenario.write()
    scenario.environment["SLIME_ACCELERATOR"] = "musa"
    scenario.answer["selected"] = scenario.select()


def vendor_request(scenario: Scenario) -> None:
    """`MUSA_PATCH_PATH` alone is a request."""
    scenario.write()
    scenario.answer["selected"] = scenario.select()


def automatic(scenario: Scenario) -> None:
    """Without a request the patch comes after the choice and before construction; it is found among the installed modules."""
    scenario.write()
    sys.path.append(scenario.environment.pop("MUSA_PATCH_PATH"))
    scenario.answer["selected"] = scenario.select()


def another_chosen(scenario: Scenario) -> None:
    """Choosing another backend, by name or because MUSA has no device, imports no patch."""
    scenario.write()
    scenario.environment["SLIME_ACCELERATOR"] = "rival"
    scenario.answer["selected"] = scenario.select()
    scenario.selector.reset()
    scenario.available = False
    sys.path.append(scenario.environment.pop("MUSA_PATCH_PATH"))
    scenario.environment["SLIME_ACCELERATOR"] = "auto"
    scenario.answer["selected again"] = scenario.select()


def twice(scenario: Scenario) -> None:
    """A second selection does not import it again."""
    scenario.write("def patch_after_import_torch(): pass")
    for key in ("selected", "selected again"):
        scenario.answer[key] = scenario.select()
        scenario.selector.reset()


def threads(scenario: Scenario) -> None:
    """Many first calls import it once."""
    scenario.write()
    start = threading.Barrier(_THREADS)
    selected: list[str] = []

    def ask() -> None:
        start.wait(20)
        selected.append(scenario.select())

    started = [threading.Thread(target=ask, daemon=True) for _ in range(_THREADS)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(20)
    scenario.answer["selected"] = sorted(set(selected))


def absent(scenario: Scenario) -> None:
    """An absent patch is a warning, on the library's logger or as a Python warning."""
    scenario.environment["MUSA_PATCH_PATH"] = str(scenario.folder)
    records: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.captureWarnings(True)
    logging.getLogger().addHandler(handler)
    try:
        scenario.answer["selected"] = scenario.select()
    finally:
        logging.getLogger().removeHandler(handler)
        logging.captureWarnings(False)
    scenario.answer["warnings"] = [text for text in records if scenario.module in text]


def missing_dependency(scenario: Scenario) -> None:
    """A dependency of the patch is missing."""
    scenario.write("import surely_absent_dependency")
    scenario.answer["selected"] = scenario.select()


def other_failure(scenario: Scenario) -> None:
    """The patch fails in any other way."""
    scenario.write("raise OSError('the patch is broken')")
    scenario.answer["selected"] = scenario.select()


def mended(scenario: Scenario) -> None:
    """After a failure nothing is left behind, and after its cause is mended the next call succeeds."""
    path = list(sys.path)
    scenario.write("raise OSError('the patch is broken')")
    scenario.answer["failed"] = scenario.select()
    scenario.answer["left in sys.path"] = [entry for entry in sys.path if entry not in path]
    scenario.answer["left in sys.modules"] = [name for name in sys.modules if name.partition(".")[0] == scenario.module]
    scenario.write("# mended\n")
    scenario.answer["selected"] = scenario.select()


SCENARIOS: tuple[Callable[[Scenario], None], ...] = (
    explicit_request, vendor_request, automatic, another_chosen, twice, threads, absent, missing_dependency, other_failure, mended,
)  # fmt: skip


def all_scenarios(make_accelerator: ChildBackend) -> dict[str, Any]:
    """The answer and the journal of each scenario, by its name."""
    make_accelerator.apply_fault()
    answers: dict[str, Any] = {}
    for number, run in enumerate(SCENARIOS):
        with tempfile.TemporaryDirectory() as folder:
            scenario = Scenario(Path(folder), f"conformance_vendor_patch_{number}")
            try:
                run(scenario)
            except Exception as error:  # noqa: BLE001 - the check reports it
                scenario.answer["unexpected"] = f"{type(error).__name__}: {error}"
            answers[run.__name__] = {**scenario.answer, "journal": scenario.journal}
    return answers
