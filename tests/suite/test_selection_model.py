"""The model of selection that the suite compares with, itself compared with the contract's words."""

from __future__ import annotations

from conformance.models.selection import EXPLICIT, Expectation, ModelBackend, expected_selection


def test_the_rows_of_the_clause() -> None:
    """The rows of SEL-1 as the seed's readers would write them down."""
    musa, cuda = ModelBackend("musa", 200, "usable", ("MUSA_VISIBLE_DEVICES",)), ModelBackend("cuda", 100, "usable")
    gone = ModelBackend("musa", 200, "unusable", ("MUSA_VISIBLE_DEVICES",))
    assert expected_selection([cuda, musa], {}) == Expectation("selected", "musa")
    assert expected_selection([cuda, gone], {}) == Expectation("selected", "cuda")
    assert expected_selection([cuda, gone], {"MUSA_VISIBLE_DEVICES": "0"}) == Expectation("unmet", "musa")
    assert expected_selection([cuda, gone], {"MUSA_VISIBLE_DEVICES": "0", EXPLICIT: " CUDA"}) == Expectation("selected", "cuda")
    assert expected_selection([gone], {}) == Expectation("nothing")
