"""The report's page in a real browser: nothing fetched, nothing cut off, filters and anchors without a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import pytest
from pages import DEVICES, Opened
from report_factory import make_failing_report, make_package, make_report

from conformance.clauses import CLAUSES
from reports.model import Report

Open = Callable[..., Opened]

_FAILING = make_package(make_failing_report())["report.html"]
_HONEST = make_package()["report.html"]
_NOT_RUN = make_package(make_report(outcomes=dict.fromkeys(CLAUSES, "not-run")))["report.html"]
_CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (!text || !element.checkVisibility() || element.closest("svg, script, style")) continue;
    const ink = numbers(getComputedStyle(element).color);
    let behind = element;
    while (behind && numbers(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
    const paper = numbers(getComputedStyle(behind ?? document.body).backgroundColor);
    const [one, other] = [light(ink), light(paper)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) weak.push(`${text.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return weak;
}"""


def visible_clauses(opened: Opened) -> list[str]:
    found: list[str] = opened.page.eval_on_selector_all(
        ".clause", "(all) => all.filter((one) => one.checkVisibility()).map((one) => one.id)"
    )
    return found


def width(opened: Opened) -> int:
    found: int = opened.page.evaluate("document.documentElement.scrollWidth")
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("html", [_FAILING, _HONEST, _NOT_RUN], ids=["failing", "honest", "not-run"])
def test_nothing_is_fetched_complained_of_or_cut_off(html: bytes, device: str, open_page: Open) -> None:
    opened = open_page(html, device)
    everything = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    for _ in range(2):
        assert opened.complaints == []
        assert len(opened.requests) == 1
        assert opened.requests[0].startswith("file:")
        assert width(opened) <= DEVICES[device]["viewport"]["width"]
        opened.page.evaluate(everything)


@pytest.mark.parametrize("device", DEVICES)
def test_text_can_be_read_on_its_background(device: str, open_page: Open) -> None:
    opened = open_page(_FAILING, device)
    assert opened.page.evaluate(_CONTRAST) == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("clause", ["STR-3", "RXA-2"])
def test_a_failures_picture_is_seen(clause: str, device: str, open_page: Open) -> None:
    opened = open_page(_FAILING, device)
    picture = opened.page.locator(f"#{clause} figure svg")
    picture.scroll_into_view_if_needed()
    assert picture.is_visible()
    box = picture.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 100
    colours: Any = opened.page.evaluate(
        f"""[...document.querySelectorAll('#{clause} figure svg rect')].filter((one) => one.getBoundingClientRect().width > 5).length"""
    )
    assert colours >= 5


def test_an_anchor_opens_its_clause(open_page: Open) -> None:
    for clause in ("DEV-2", "STR-3", "RXR-5"):
        opened = open_page(_FAILING, anchor=clause)
        target = opened.page.locator(f"#{clause}")
        assert target.evaluate("(one) => one.open")
        assert target.locator(".inside").is_visible()
        box = target.locator("> summary").bounding_box()
        filters = opened.page.locator(".filters").bounding_box()
        assert box is not None
        assert filters is not None
        assert filters["y"] + filters["height"] <= box["y"] + 4 < 900


def test_a_link_to_a_clause_that_is_filtered_away_shows_it(open_page: Open) -> None:
    opened = open_page(_FAILING)
    opened.page.locator(".filters button[value=pass]").click()
    assert not opened.page.locator("#DEV-1").is_visible()
    opened.page.locator(".levels a[href='#DEV-1']").first.click()
    assert opened.page.locator("#DEV-1 .inside").is_visible()


def test_filters_by_outcome_and_words(open_page: Open) -> None:
    report = make_failing_report()
    opened = open_page(_FAILING)
    ids = [clause.id for clause in report.clauses]
    assert visible_clauses(opened) == ids
    for outcome in report.counts:
        opened.page.locator(f".filters button[value='{outcome}']").click()
        assert visible_clauses(opened) == [clause.id for clause in report.clauses if clause.outcome == outcome]
        assert opened.page.locator("section.of-area:visible").count() <= report.counts[outcome]
    opened.page.locator(".filters button[value=all]").click()
    opened.page.locator(".filters input").fill("rng-")
    assert visible_clauses(opened) == [clause for clause in ids if clause.startswith("RNG-")]
    opened.page.locator(".filters input").fill("no clause has these words")
    assert visible_clauses(opened) == []
    assert opened.page.locator(".nothing").is_visible()


def test_without_scripts_everything_is_there(open_page: Open) -> None:
    opened = open_page(_FAILING, java_script_enabled=False)
    assert opened.page.locator(".clause").count() == len(make_failing_report().clauses)
    assert opened.page.locator("#STR-3 figure svg").is_visible()
    assert not opened.page.locator(".filters").is_visible()
    assert not opened.page.locator(".nothing").is_visible()


def test_the_trace_is_saved_from_the_page_itself(open_page: Open) -> None:
    opened = open_page(_FAILING)
    opened.page.locator("#STR-3 .trace summary").click()
    link = opened.page.locator("#STR-3 .trace a")
    with opened.page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == "trace-STR-3.json"
    with urlopen(str(link.get_attribute("href"))) as data:
        trace = json.load(data)
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X", "s", "f"}
    assert any(event["name"] == "missing wait" for event in trace["traceEvents"])
    assert len(opened.requests) <= 2  # the page, and the link's own data


def test_on_paper(open_page: Open) -> None:
    opened = open_page(_FAILING, viewport={"width": 690, "height": 1000})
    opened.page.emulate_media(media="print")
    assert width(opened) <= 690
    for hidden in (".filters", ".areas", ".trace"):
        assert not opened.page.locator(hidden).first.is_visible()
    for shown in (".headline", "#STR-3 figure svg", "#DEV-2 summary"):
        assert opened.page.locator(shown).first.is_visible()
    assert opened.page.evaluate(_CONTRAST) == []
    paper = opened.page.pdf(format="A4")
    assert paper.startswith(b"%PDF")


def test_hostile_text_stays_text(open_page: Open) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`onload=alert(3)` {{ 7*7 }}"
    report = make_failing_report()
    checks = tuple(
        check.model_copy(
            update={
                "said": evil,
                "failure": check.failure
                and check.failure.model_copy(update={"program": evil, "replay": evil, "document": {evil: [evil]}}),
            }
        )
        for check in report.checks
    )
    report = Report.from_bytes(
        report.model_copy(
            update={
                "checks": checks,
                "clauses": tuple(clause.model_copy(update={"text": evil}) for clause in report.clauses),
                "declared": report.declared.model_copy(update={"vendor": evil, "product": evil}),
                "backend": report.backend.model_copy(update={"name": evil, "adapter": evil, "configuration": {evil: evil}}),
                "host": report.host.model_copy(update={"os": evil, "libraries": {evil: evil}, "torch_build": evil}),
                "run": report.run.model_copy(update={"argv": (evil,), "fault": evil}),
            }
        ).to_bytes()
    )
    opened = open_page(make_package(report)["report.html"], "phone")
    opened.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert opened.complaints == []
    assert len(opened.requests) == 1
    assert opened.page.locator("script").count() == 1
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("#DEV-1 .text").inner_text().startswith("</script><script>alert(1)")
    assert width(opened) <= 390


def test_ten_thousand_clauses_can_be_filtered(open_page: Open) -> None:
    report = make_report()
    clauses = tuple(
        report.clauses[number % len(report.clauses)].model_copy(update={"id": f"DEV-{number + 1}"}) for number in range(10_000)
    )
    opened = open_page(make_package(report.model_copy(update={"clauses": clauses}))["report.html"])
    opened.page.locator(".filters input").fill("dev-10000")
    assert visible_clauses(opened) == ["DEV-10000"]
    assert opened.complaints == []
