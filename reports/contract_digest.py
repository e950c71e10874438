"""A digest of the contract that this version of the suite holds.

For: telling reports under different wordings of one revision apart. Not for: the text itself.
"""

from __future__ import annotations

import hashlib
import json

from conformance import CONTRACT_REVISION
from conformance.clauses import CLAUSES


def contract_digest() -> str:
    """SHA-256 over the revision and every clause: id, level, subject, tiers, capability, text."""
    rows = [
        [clause.id, clause.level.value, clause.subject.value, [tier.value for tier in clause.tiers], clause.capability, clause.text]
        for clause in CLAUSES.values()
    ]
    return hashlib.sha256(json.dumps([CONTRACT_REVISION, rows], ensure_ascii=False).encode()).hexdigest()
