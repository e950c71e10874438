"""Long texts in what a person reads.

For: a line or two out of something that can have any length. Not for: text that is not trusted (`reports/untrusted_text.py`).
"""

from __future__ import annotations


def beginning(text: str, limit: int) -> str:
    """The text, or its first `limit` characters and a mark that more follows."""
    return text if len(text) <= limit else f"{text[:limit]} …"
