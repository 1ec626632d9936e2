"""A headless Chromium that looks at pages: what they ask of the network, what goes wrong in them, and how they look.

DELAYBRIDGE_TEST_CHROMIUM     the browser to use; else the first of `chromium`, `chromium-browser`, `google-chrome`
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from brokers.common import Unavailable
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Dialog, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
LOOKS = Path(__file__).with_name("looks.js").read_text()


def chromium() -> str:
    """Where the browser is. Raises Unavailable."""
    found = os.environ.get("DELAYBRIDGE_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise Unavailable(f"no DELAYBRIDGE_TEST_CHROMIUM, no {', '.join(NAMES)} (apt install chromium)")
    return found


@contextmanager
def running(path: str) -> Iterator[Browser]:
    """The browser, for the length of the `with` block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """A file in a page of its own: `asked` are all its requests, `complaints` what it wrote to the console, threw, or wanted to say in a dialog."""

    def __init__(self, browser: Browser, file: Path, width: int, scheme: str) -> None:
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]  # a literal
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.goto(file.as_uri(), wait_until="load")

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def problems(self) -> list[str]:
        """See looks.js."""
        self.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        found: list[str] = self.page.evaluate(LOOKS)
        return found


@contextmanager
def looking(browser: Browser, file: Path, width: int = 1280, scheme: str = "light") -> Iterator[Seen]:
    """The page that this file is."""
    seen = Seen(browser, file, width, scheme)
    try:
        yield seen
    finally:
        seen.page.close()
