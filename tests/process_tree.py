"""Which processes another one has started."""

from __future__ import annotations

from pathlib import Path


def descendants(process: int) -> list[int]:
    """The processes below one, at any depth."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found, new = [], [process]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found
