"""The python blocks of the documents that are marked as runnable, and how one is run.

A block runs if the line before it is the comment `<!-- runs -->`. One with tests in it runs under pytest, as its document says.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^(?P<mark><!-- runs -->\n)?```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One python block: the document, the line that opens it, its text, and whether it is marked."""

    document: str
    line: int
    text: str
    runs: bool

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks() -> list[Block]:
    """Every python block of the README and of docs/, in order."""
    found = []
    for path in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))):
        text = path.read_text()
        for match in _BLOCK.finditer(text):
            line = text[: match.start("text")].count("\n")
            found.append(Block(str(path.relative_to(REPOSITORY)), line, match["text"], match["mark"] is not None))
    return found


def run_here(_make_accelerator: object, text: str, name: str) -> int:
    """Run a block in this process, which must end soon after; 0 where it held."""
    if "def test_" not in text:
        exec(compile(text, name, "exec"), {"__name__": "block"})
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test_block.py"
        path.write_text(text)
        options = [
            "-q",
            "-c",
            "/dev/null",
            f"--rootdir={folder}",
            "-p",
            "fakes.pytest_plugin",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
        ]
        return int(pytest.main([*options, str(path)]))
