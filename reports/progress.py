"""How far a long run has come, by area, with an estimate of what is left.

For: a line at a terminal every half minute. Not for: pytest's own progress, or short runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Counts checks as they are reported. Times are seconds of any clock that only goes forward; `area_of` gives a check's area."""

    def __init__(self, area_of: Mapping[str, str], now: float) -> None:
        self._area_of = area_of
        self._started = self._said = now
        self._total: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def expect(self, checks: Iterable[str]) -> None:
        """Name the checks that will be reported."""
        self._total = Counter(map(self._area, checks))

    def reported(self, check: str, *, failed: bool) -> None:
        """Count a check."""
        area = self._area(check)
        self._done[area] += 1
        self._failed[area] += failed

    def line_if_due(self, now: float) -> str | None:
        """A line to print, where the last one was long enough ago."""
        if now - self._said < SECONDS_BETWEEN_LINES or not self._done:
            return None
        self._said = now
        return self.line(now)

    def line(self, now: float) -> str:
        """The areas that have begun, and an estimate from the time that a check has taken so far."""
        done, total = self._done.total(), max(self._total.total(), self._done.total())
        areas = [self._of_area(area) for area in dict.fromkeys([*self._total, *self._done]) if self._done[area]]
        left = (now - self._started) / done * (total - done)
        return f"{done} of {total} checks after {_duration(now - self._started)}, about {_duration(left)} left: {', '.join(areas)}"

    def _of_area(self, area: str) -> str:
        failed = f" ({self._failed[area]} failed)" if self._failed[area] else ""
        return f"{area} {self._done[area]}/{max(self._total[area], self._done[area])}{failed}"

    def _area(self, check: str) -> str:
        return self._area_of.get(check.partition("[")[0], "other")


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
