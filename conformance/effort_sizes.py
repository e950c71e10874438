"""How many examples a property gets, by effort.

For: the suite, and readers of reports, who need no Hypothesis. Not for: putting an effort in force (`efforts.py`).
"""

from __future__ import annotations

from types import MappingProxyType

EXAMPLES = MappingProxyType({"quick": 10, "default": 100, "certify": 1000})
"""Examples a property, by effort."""
