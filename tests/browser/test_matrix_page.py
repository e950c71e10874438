"""The page of many reports side by side, in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pages import DEVICES, Opened
from report_factory import make_failing_report, make_report

from reports.matrix import make_matrix, to_html


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_is_fetched_complained_of_or_cut_off(device: str, open_page: Callable[..., Opened]) -> None:
    html = to_html(make_matrix([(make_report(), True), (make_failing_report(), True)] * 3))
    opened = open_page(html.encode(), device)
    assert opened.complaints == []
    assert len(opened.requests) == 1
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= DEVICES[device]["viewport"]["width"]


def test_paper_shows_every_column(open_page: Callable[..., Opened]) -> None:
    """What does not fit on paper is lost, unlike on a screen."""
    html = to_html(make_matrix([(make_report(), True), (make_failing_report(), True)] * 3))
    opened = open_page(
        html.encode(), "light", viewport={"width": 1047, "height": 718}
    )  # A4 across, less its margins, in CSS pixels
    opened.page.emulate_media(media="print")
    right = opened.page.evaluate(
        "Math.max(...[...document.querySelectorAll('td, th')].map(one => one.getBoundingClientRect().right))"
    )
    assert right <= 1047
