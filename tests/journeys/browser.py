"""A person at Dagster's pages: an installed Chromium, driven by Playwright."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Locator, Page, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Without the background services that it would look for on the network.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
# A page waits this long for what it is asked to find: a run of a few days takes some seconds on a busy machine.
PATIENCE_MS = 60_000


@dataclass(frozen=True)
class Browser:
    """The pages of the webserver at `url`, whose code location is `location`."""

    page: Page
    url: str
    location: str

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.url}{path}")
        return self.page

    def group(self, name: str) -> Page:
        """The page of an asset group, as a graph."""
        return self.open(f"/locations/__repository__@{self.location}/asset-groups/{name}/lineage")

    def launchpad(self, job: str) -> Page:
        return self.open(f"/locations/__repository__@{self.location}/jobs/{job}/playground")

    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog").last

    def press(self, name: str, within: Locator | None = None) -> None:
        (within or self.page).get_by_role("button", name=name).last.click()

    def type_config(self, config: str) -> None:
        """Replace what the configuration editor holds."""
        self.page.locator(".CodeMirror").last.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(config)

    def sees(self, text: str | re.Pattern[str]) -> Locator:
        """What shows this text, once it does."""
        found = self.page.get_by_text(text).first
        found.wait_for()
        return found


@contextmanager
def browser_on(url: str, location: str, *, height: int = 900) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = chromium.new_page(viewport={"width": 1400, "height": height})
        page.set_default_timeout(PATIENCE_MS)
        try:
            yield Browser(page, url, location)
        finally:
            chromium.close()
