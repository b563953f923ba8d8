"""`make screenshots`: every page of the console, light and dark, narrow and wide, as PNG files."""

import argparse
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

from playwright.sync_api import Page

from headrace.client.client import Client
from infra.launch import launched
from tests.browser.chrome import (
    Colours,
    Window,
    chromium,
    deleted,
    dry_run,
    opened,
    signed_in,
)
from tests.browser.fixtures import fill
from tests.browser.places import names_of, pages, states

_WIDTHS: Final = (320, 390, 1280)
_FIRST: Final = ("all", "create-queue", "schedules", "keys", "audit", "pipelines", "errors")
_HIGHEST: Final = 8_000  # pixels of a page that are drawn


def main() -> None:
    """Fill a service and draw its console."""
    parser = argparse.ArgumentParser("python -m tests.browser.screenshots", description=__doc__)
    parser.add_argument("--into", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--only", default="", help="pages whose name matches this expression")
    parser.add_argument("--widths", type=int, nargs="+", default=_WIDTHS)
    parser.add_argument("--colours", nargs="+", default=get_args(Colours))
    given = parser.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    with chromium() as browser, launched() as bare, launched() as full:
        with Client(full.url, full.admin_key) as client:
            fixtures = fill(client)
        admin = signed_in(browser, full.url, full.admin_key)
        names = names_of(
            fixtures, dry_run(browser, full.url, admin), deleted(browser, full.url, admin)
        )
        looks = (
            ("", full.url, admin, pages(names) | states(fixtures)),
            ("viewer-", full.url, signed_in(browser, full.url, fixtures.viewer.secret), {
                "queue": "/console/queues/mail?state=DEAD",
                "task": f"/console/tasks/{fixtures.dead}",
                "refused": f"/console/tasks/{fixtures.dead}/delete"}),
            ("first-", bare.url, signed_in(browser, bare.url, bare.admin_key), {
                name: path for name, path in pages(names).items() if name in _FIRST}),
            ("", full.url, None, {"sign-in": "/console/sign-in"}),
        )  # fmt: skip
        for prefix, url, state, places in looks:
            wanted = {
                prefix + name: f"{url}{path}"
                for name, path in places.items()
                if re.search(given.only, prefix + name)
            }
            for window in _windows(given) if wanted else ():
                with opened(browser, window, state) as (_, page):
                    for name, place in wanted.items():
                        page.goto(place)
                        _draw(page, window, given.into / name)


def _windows(given: argparse.Namespace) -> Iterator[Window]:
    for width, colours in itertools.product(given.widths, given.colours):
        yield Window(width, 900, colours)


def _draw(page: Page, window: Window, target: Path) -> None:
    page.wait_for_load_state()
    high = min(_HIGHEST, int(page.evaluate("document.documentElement.scrollHeight")))
    path = target.with_name(f"{target.name}-{window.width}-{window.colours}.png")
    page.screenshot(
        path=path,
        full_page=True,
        clip={"x": 0, "y": 0, "width": window.width, "height": max(high, 400)},
    )
    over = int(page.evaluate("document.documentElement.scrollWidth")) - window.width
    print(f"{path}{f', {over} px too wide' if over > 0 else ''}")  # noqa: T201  how far it is


if __name__ == "__main__":
    main()
