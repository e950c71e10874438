"""The example with a forgotten wait does what its text says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "examples" / "forgotten_wait"


def test_the_example_shows_the_forgotten_wait() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "demonstrate.py")], capture_output=True, text=True, timeout=240, cwd=FOLDER.parents[1], check=False,
        env=_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = done.stdout
    forgotten, mended = text.split("the wait is there")
    assert "eager     right" in forgotten and "directed  WRONG" in forgotten
    assert "wrong for 0 of" not in forgotten
    first = int(forgotten.split("the first is ")[1].split()[0])
    assert first < 5
    assert "WRONG" not in mended and "wrong for 0 of 10 seeds" in mended
    assert "two accesses to the same memory are not ordered: write, then read" in text
    assert "weight_sync.py" in text and "in update" in text and "in serve" in text
    assert text.rstrip().splitlines()[-1].startswith("launch ")


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(FOLDER.parents[1])}
