"""`badge.svg`: status and levels at a glance. A badge never says more than the report's first line. Not for: details."""

from __future__ import annotations

from html import escape

from reports.model import Report
from reports.rendering.lookup import xml_text

_COLOURS = {"hardware": "#1a7f37", "preview": "#8a6100", "simulated": "#57606a"}
_FAILED = "#b42318"
_CHARACTER, _MARGIN = 6.4, 9.0  # SVG units


def render(report: Report) -> bytes:
    """A self-contained SVG document."""
    verdict = report.verdict
    attained = [level.name for level in verdict.levels if level.state == "attained"]
    failed = sum(report.counts.get(outcome, 0) for outcome in ("fail", "flaky", "harness-error"))
    said: list[str] = [verdict.status if verdict.status != "hardware" else "certified" if attained else "not certified"]
    said.append("full" if "full" in attained else " + ".join(attained))
    said.append(f"{failed} failed" if failed else "")
    left = xml_text(f"{report.backend.name} · contract {report.suite.contract_revision}")
    right = xml_text(": ".join(part for part in said if part))
    left_width, right_width = (_CHARACTER * len(text) + 2 * _MARGIN for text in (left, right))
    width = left_width + right_width
    colour = _FAILED if failed else _COLOURS[verdict.status]
    text = 'fill="#ffffff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="22" viewBox="0 0 {width:.0f} 22" role="img">
<title>{escape(xml_text(verdict.headline))}</title>
<rect width="{width:.0f}" height="22" rx="4" fill="#3b4248"/>
<path d="M{left_width:.1f} 0H{width - 4:.1f}a4 4 0 0 1 4 4V18a4 4 0 0 1 -4 4H{left_width:.1f}Z" fill="{colour}"/>
<text x="{left_width / 2:.1f}" y="15" {text} textLength="{_CHARACTER * len(left):.1f}">{escape(left)}</text>
<text x="{left_width + right_width / 2:.1f}" y="15" {text} textLength="{_CHARACTER * len(right):.1f}">{escape(right)}</text>
</svg>
""".encode()
