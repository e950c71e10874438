"""How a check ends without a verdict on the subject.

For: outcomes that are neither pass nor fail; the gates and the checks raise them. Not for: failures (`errors.py`). They stand apart from
the other errors because they need pytest, which child processes do without.

    CheckEnded (pytest's own "skipped", so that pytest and Hypothesis stop at once)
    ├── Unsupported       the backend does not have the ability; carries the evidence
    ├── NotRun            a prerequisite is missing; carries the reason
    └── NotCheckable      the runtime exposes nothing to check against; carries the reason
"""

from __future__ import annotations

from _pytest.outcomes import Skipped


class CheckEnded(Skipped):
    """A check ended without a verdict. pytest stops the check as for a skip; the plugin then reports the real outcome."""

    def __init__(self, text: str) -> None:
        super().__init__(msg=text, _use_item_location=True)
        self.text = text


class Unsupported(CheckEnded):
    """The backend does not have the ability; `text` is the evidence."""


class NotRun(CheckEnded):
    """A prerequisite is missing; `text` is the reason."""


class NotCheckable(CheckEnded):
    """The runtime exposes nothing to check against; `text` is the reason."""
