"""A real browser, headless: the system's Chromium, driven by Playwright. Nothing is downloaded.

For: `tox -e browser`. Without Chromium these tests fail, they are not skipped.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import DEVICES, Opened
from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "reports"))

_NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.fail(f"no Chromium here (looked for {', '.join(_NAMES)}); on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens HTML from a file: `open_page(html, "phone", anchor="DEV-1")`; further options are Playwright's for a context."""
    contexts = []

    def open_it(html: bytes, device: str = "light", anchor: str = "", **options: Any) -> Opened:
        path = tmp_path / "page.html"
        path.write_bytes(html)
        contexts.append(browser.new_context(**{**DEVICES[device], **options}))
        opened = Opened(contexts[-1].new_page())
        opened.page.set_default_timeout(20_000)
        opened.page.on("console", lambda message: opened.complaints.append(message.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on("dialog", lambda dialog: (opened.complaints.append(dialog.message), dialog.dismiss()))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(path.as_uri() + (f"#{anchor}" if anchor else ""))
        return opened

    yield open_it
    for context in contexts:
        context.close()
