"""`make screenshots`: every page of the console, light and dark, narrow and wide, as PNG files."""

import argparse
import itertools
import re
from pathlib import Path
from typing import Any, Final, get_args

from playwright.sync_api import Browser

from headrace.client.client import Client
from infra.local.launch import launched
from tests.browser.chrome import Colours, Window, chromium, dry_run, opened, signed_in
from tests.browser.places import names_of, pages, states
from tests.browser.stock import fill

_WIDTHS: Final = (320, 768, 1440)
_FIRST: Final = ("all", "create-queue", "schedules", "keys", "audit", "pipelines", "dead")
_HIGHEST: Final = 4_000  # pixels of a page that are drawn


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
            stock = fill(client)
        admin = signed_in(browser, full.url, full.admin_key)
        names = names_of(stock, dry_run(browser, full.url, admin))
        looks = (
            ("", full.url, admin, pages(names) | states(stock)),
            ("viewer-", full.url, signed_in(browser, full.url, stock.viewer.secret), {
                "queue": "/console/queues/mail?state=DEAD", "task": f"/console/tasks/{stock.dead}",
                "refused": f"/console/tasks/{stock.dead}/delete"}),
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
            _draw(browser, state, wanted, given)


def _draw(browser: Browser, state: Any, wanted: dict[str, str], given: argparse.Namespace) -> None:
    for width, colours in itertools.product(given.widths, given.colours) if wanted else ():
        with opened(browser, Window(width, 900, colours), state) as (_, page):
            for name, url in wanted.items():
                page.goto(url)
                high = min(_HIGHEST, int(page.evaluate("document.documentElement.scrollHeight")))
                target = given.into / f"{name}-{width}-{colours}.png"
                clip = {"x": 0, "y": 0, "width": width, "height": max(high, 400)}
                page.screenshot(path=target, full_page=True, clip=clip)
                over = int(page.evaluate("document.documentElement.scrollWidth")) - width
                print(f"{target}{f', {over} px too wide' if over > 0 else ''}")  # noqa: T201  how far it is


if __name__ == "__main__":
    main()
