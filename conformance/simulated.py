"""The simulated machine of this process, if it has one.

For: code that runs on real devices too, where nothing of the simulation must be imported. Not for: installing one (`backends.py`).
"""

from __future__ import annotations

import sys
from typing import Any


def machine_here() -> Any | None:
    """The `fakes.Machine` that is installed in this process, None where there is none."""
    fakes: Any = sys.modules.get("fakes")
    return None if fakes is None else fakes.installed_machine()
