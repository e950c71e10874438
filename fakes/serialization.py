from typing import Any


def apply(patches: Any, machine: Any = None) -> None: ...
