"""The README's pictures, of a demo that is running: `python -m tests.screenshots
http://127.0.0.1:3000`.
"""

import sys
from pathlib import Path

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.tags import CHUNK
from backfill_assets.settings import BUNDLED
from tests.worlds.station import Browser, browser_on

FOLDER = Path(__file__).parents[1] / ".readme"
TABLE = "staging/outages"
DAY = "2019-09-05"
# Of the page: without the navigation on the left, and the plots without the definition on the
# right.
LEFT = 240
WIDTH = 1160
OF_PLOT = 810
HEIGHT = 620


def partitions(browser: Browser) -> None:
    browser.open(f"/assets/{TABLE}?view=partitions&partition={DAY}")
    browser.sees("fingerprint")


def check(browser: Browser) -> None:
    browser.open(f"/assets/{TABLE}?view=checks&checkDetail=has_rows")
    browser.sees("blocking")  # then the check has its own tabs
    browser.page.get_by_role("tab", name="Partitions").last.click()
    browser.sees("Passed (60)")


def plot(browser: Browser) -> None:
    browser.open(f"/assets/{TABLE}?view=overview")
    browser.page.get_by_text("Plots", exact=True).click()
    browser.page.locator("canvas").first.wait_for()
    browser.sees("dagster/partition_row_count").evaluate("each => each.scrollIntoView()")


def run(browser: Browser) -> None:
    """The first chunk of a plan: runs without one report, or draw charts."""
    tag = f'{{key: "{CHUNK}", value: "1"}}'
    found = (
        f"{{ runsOrError(filter: {{tags: [{tag}]}}) {{ ... on Runs {{ results {{ runId }} }} }} }}"
    )
    runs = Dagster(browser.url).ask(found)["runsOrError"]["results"]
    browser.open(f"/runs/{runs[-1]['runId']}")
    browser.sees("Loading run logs").wait_for(state="hidden")


def main(url: str) -> None:
    with browser_on(url, BUNDLED, height=HEIGHT) as browser:
        for show in (partitions, check, plot, run):
            show(browser)
            browser.page.wait_for_load_state("networkidle")
            browser.page.wait_for_timeout(2000)  # what was found is still being drawn
            clip = {
                "x": LEFT,
                "y": 0,
                "width": OF_PLOT if show is plot else WIDTH,
                "height": HEIGHT,
            }
            browser.page.screenshot(path=FOLDER / f"{show.__name__}.png", clip=clip)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1])
