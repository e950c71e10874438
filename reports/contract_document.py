"""`docs/contract.md`, rendered from the clause data and the capabilities.

For: `accelerator-conformance clauses --markdown` and the test that keeps the file equal. Not for: the text
itself (`conformance.contract_text`).
"""

from __future__ import annotations

from conformance import CONTRACT_REVISION
from conformance.clauses import AREAS, Area, Clause
from harness.accelerator.capabilities import Capability

_OPENING = f"""# The contract: what a conforming backend does

Revision {CONTRACT_REVISION}. Rendered from `conformance/contract_text.py`; change that file, then run
`accelerator-conformance clauses --markdown > docs/contract.md`.

Every clause has an id, a level (MUST, SHOULD, MAY as in RFC 2119), a subject (whose code is under test), a tier, and, where it is
optional, the capability that switches it on. Ids are never reused. Correct hardware must pass: where a clause and a correct driver
disagree, the clause is wrong.

Clauses bind the *adapter* (the `Accelerator` object that a framework calls), not the vendor's raw namespace: where a raw namespace is
lax, the adapter checks first. "Physical id" is the number or UUID that the vendor's driver gives a device; "local id" is its index after
the vendor's visible-devices variables have been applied.

| tier | needs | runs on |
|---|---|---|
| host | no device | any machine |
| device | one device | simulated machines, one real device |
| multi-device | two devices in one process | simulated machines, a real host |
| multi-rank | two ranks with collectives on one host | simulated machines over gloo, a real host |
| multi-node | ranks on two hosts, started by torchrun | real clusters; two torchrun agents on one host in tests |

† marks what slime's code of August 2026 is known not to meet.
"""


def render_contract() -> str:
    """The whole document in Markdown, ending in a newline."""
    return "\n".join([_OPENING, *(_area(area) for area in AREAS.values()), _capabilities()])


def _area(area: Area) -> str:
    subject, tiers = area.clauses[0].subject.value, _tiers(area.clauses[0])
    head = f"## {area.name}: {area.title}\n\nSubject: {subject}. Tier: {tiers}, unless a clause says otherwise.\n"
    rows = ["| id | level | capability | text |", "|---|---|---|---|", *(_row(clause, tiers) for clause in area.clauses)]
    return "\n".join([head, *rows, ""])


def _row(clause: Clause, area_tiers: str) -> str:
    mark = " †" if clause.known_gap else ""
    tiers = _tiers(clause)
    note = "" if tiers == area_tiers else f" ({tiers})"
    return f"| {clause.id}{mark} | {clause.level.value}{note} | {clause.capability or ''} | {clause.text} |"


def _tiers(clause: Clause) -> str:
    return " and ".join(tier.value for tier in clause.tiers)


def _capabilities() -> str:
    rows = [
        f"| `{capability.value}` | {capability.description} | {capability.probe}{_notes(capability)} |"
        for capability in sorted(Capability)
    ]
    head = "## Capabilities\n\nThe set is closed: asking for another name raises, with the nearest known one (CAP-1).\n"
    return "\n".join([head, "| name | what declaring it promises | what proves or refutes it |", "|---|---|---|", *rows, ""])


def _notes(capability: Capability) -> str:
    return " Asking may initialise the current device." if capability.needs_device else ""
