"""Text that checks draw: a few characters of every kind that programs get wrong.

For: names and values in which any character may stand. Not for: every character of Unicode: to draw from all of them Hypothesis first
computes tables of all, which takes seconds of each run, since its caches are a run's own.
"""

from __future__ import annotations

from hypothesis import strategies as st

CHARACTERS = (
    "abzAZ019 _-.,:;/\\'\"%{}$#=()[]"  # what names are made of, and what syntaxes of all sorts give a meaning to
    "\0\t\n\r\x1b\x7f\x85\xa0\u200b\u2028\u202e\ufeff"  # control characters, and spaces that do not look it
    "éßẞİıſΣσς\u0301Kﬁ"  # letters whose case changes their number or does not come back, a lone accent, a Kelvin sign, a ligature
    "٣²Ⅷ中文ﾊ한א\U0001f600\U00010400\uffff"  # digits that `int` takes or refuses, other scripts, beyond 16 bits, no character at all
)
"""None of them is a surrogate, so that all can be encoded."""
SURROGATE = "\ud800"


def some_text(max_size: int, *, surrogates: bool = False) -> st.SearchStrategy[str]:
    """Up to `max_size` characters; with `surrogates`, some cannot be encoded."""
    return st.text(CHARACTERS + (SURROGATE if surrogates else ""), max_size=max_size)
