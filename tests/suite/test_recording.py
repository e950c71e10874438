"""What is written down of a check: the smallest failing example in full."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import summary
from conformance.errors import ClauseViolation
from conformance.recording import CheckRecord, falsifying_example


@settings(database=None)
@given(data=st.data(), number=st.integers(0, 3))
def fails_from_three_on(data: st.DataObject, number: int) -> None:
    if number + data.draw(st.integers(0, 5), label="size") >= 3 + number:
        raise ClauseViolation(f"failed after {data.draw(st.just('another draw'))}")


def test_an_example_has_what_the_check_drew_on_the_way() -> None:
    with pytest.raises(ClauseViolation) as failure:
        fails_from_three_on()
    example = falsifying_example(failure.value)
    assert "number=0" in example
    assert "Draw 1 (size): 3" in example
    assert "Draw 2: 'another draw'" in example


def test_an_error_without_notes_has_no_example() -> None:
    assert falsifying_example(ClauseViolation("of no search")) == ""


def test_a_summary_shows_the_beginning_of_a_long_example() -> None:
    example = "first\n  second " + "x" * 10_000
    record = CheckRecord("module.py::check", ["COL-1"], "host", "fail", text="what happened\nand where", example=example)
    assert summary._reason(record).startswith("what happened  [first second xxx")
    assert len(summary._reason(record)) < 600
