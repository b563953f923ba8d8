"""The distribution's Chromium, driven by Playwright."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

Colours = Literal["light", "dark"]
TIMEOUT: Final = 15_000  # milliseconds
_FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium for the length of a with block.  Raises SystemExit where there is none.

    Where its shell without windows is there too, that runs: the pages are the same, and it takes
    three fifths of the CPU.
    """
    binary = (
        os.environ.get("HEADRACE_CHROMIUM")
        or shutil.which("chromium-headless-shell")
        or shutil.which("chromium")
    )
    if binary is None:
        raise SystemExit(
            "There is no Chromium: apt-get install chromium-headless-shell, or set"
            " HEADRACE_CHROMIUM to one."
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=list(_FLAGS))
        yield browser
        browser.close()


@dataclass(frozen=True, slots=True)
class Window:
    """How a page is looked at."""

    width: int = 1280
    height: int = 900
    colours: Colours = "light"
    script: bool = True


@contextlib.contextmanager
def opened(
    browser: Browser, window: Window, state: Any = None, **more: Any
) -> Iterator[tuple[BrowserContext, Page]]:
    """Open a window of its own, with the cookies of *state*, for the length of a with block."""
    context = browser.new_context(
        viewport={"width": window.width, "height": window.height},
        color_scheme=window.colours,
        java_script_enabled=window.script,
        reduced_motion="reduce",
        storage_state=state,
        timezone_id="Europe/Madrid",
        **more,
    )
    context.set_default_timeout(TIMEOUT)
    try:
        yield context, context.new_page()
    finally:
        context.close()


def dry_run(browser: Browser, url: str, state: Any) -> str:
    """Look at all dead tasks of mail, as if to restart them; return the name of what was seen."""
    with opened(browser, Window(script=False), state) as (_, page):
        page.goto(f"{url}/console/queues/mail?state=DEAD")
        page.get_by_role("button", name="Restart all").click()
        page.get_by_text("Nothing has changed yet").wait_for()
        return str(urlsplit(page.url).path.rpartition("/")[2])


def deleted(browser: Browser, url: str, state: Any) -> str:
    """Let the service delete a few tasks that no test asks for; return the name of the action."""
    with opened(browser, Window(script=False), state) as (_, page):
        page.goto(f"{url}/console/queues/ngsi.entities?state=READY")
        page.get_by_role("button", name="Delete all").click()
        page.get_by_text("Nothing has changed yet").wait_for()
        page.get_by_role("button", name="Delete only 5").click()
        page.get_by_text("Done: 5 tasks").wait_for()
        return str(urlsplit(page.url).path.rpartition("/")[2])


def signed_in(browser: Browser, url: str, key: str) -> Any:
    """Sign in with *key* and return the cookies for ``opened``."""
    with opened(browser, Window(script=False)) as (context, page):
        page.goto(f"{url}/console/sign-in")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/console")
        return context.storage_state()
