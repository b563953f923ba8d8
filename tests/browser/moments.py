"""Pages that come only after a form was sent: what to do on which page, by name."""

from collections.abc import Callable, Mapping
from typing import Final

from playwright.sync_api import Page

from tests.browser.fixtures import EMOJI, RIGHT_TO_LEFT, WIDE

Steps = Callable[[Page], object]


def _press(name: str) -> Steps:
    return lambda page: page.get_by_role("button", name=name, exact=True).click()


def _fill(label: str, text: str, button: str) -> Steps:
    def steps(page: Page) -> None:
        page.get_by_label(label, exact=True).fill(text)
        _press(button)(page)

    return steps


def _change(page: Page) -> None:
    page.get_by_label("Description", exact=True).fill(f"{WIDE} {RIGHT_TO_LEFT} {EMOJI}")
    page.get_by_label("Most in flight", exact=True).fill("10000")
    _fill("Lease", "45s", "Show what would change")(page)


def _mistype(page: Page) -> None:
    page.get_by_label("Retries", exact=True).fill("101")
    _fill("Lease", "half a minute", "Show what would change")(page)


def _plan(page: Page) -> None:
    page.get_by_label("Name", exact=True).fill("reports")
    page.get_by_label("Time zone of cron", exact=True).fill("Europe/Madrid")
    _fill("Cron", "30 4 * * 1-5", "Show next runs")(page)


def _misplan(page: Page) -> None:
    page.get_by_label("Name", exact=True).fill("a name with spaces")
    page.get_by_label("Waits", exact=True).fill("1s, 2s, three")
    _fill("Cron", "61 * * * *", "Create schedule")(page)


def _tick(page: Page) -> None:
    for box in page.get_by_role("checkbox", name="Task tsk").all()[:7]:
        box.check()
    _press("Delete…")(page)


def _few(page: Page) -> None:
    _press("Restart all that match…")(page)
    page.get_by_text("Nothing is changed yet").wait_for()
    _press("Restart only 5")(page)
    page.get_by_text("Done: 5 tasks").wait_for()


def _overreach(page: Page) -> None:
    page.get_by_label("Name", exact=True).fill("nobody")
    _fill("Queues", "x" * 300, "Create key")(page)


def _pause(page: Page) -> None:
    if page.get_by_role("button", name="Resume deliveries").count():  # the window before has paused
        _press("Resume deliveries")(page)
    page.get_by_text("Pause…", exact=True).click()
    _press("Pause")(page)
    page.get_by_text("resumes by itself").wait_for()


def _unfold(page: Page) -> None:
    for summary in page.locator("details:not(.drop) > summary").all():  # that one lies over others
        summary.click()


MOMENTS: Final[Mapping[str, tuple[str, Steps]]] = {
    "settings-changed": ("/console/queues/thumbnails/settings", _change),
    "settings-wrong": ("/console/queues/thumbnails/settings", _mistype),
    "schedule-previewed": ("/console/create-schedule?queue=nightly", _plan),
    "schedule-wrong": ("/console/create-schedule?queue=nightly", _misplan),
    "ticked-asked": ("/console/queues/mail?state=DEAD", _tick),
    "matched-done": ("/console/queues/ngsi.notify?state=SUCCEEDED", _few),
    "queue-just-paused": ("/console/queues/thumbnails", _pause),
    "queue-purge-wrong": (f"/console/queues/{WIDE}/purge",
                          _fill("Type the queue's name", "city", f"Purge {WIDE}")),
    "queue-unfolded": ("/console/queues/mail?state=DEAD", _unfold),
    "queue-create-wrong": ("/console/create-queue",
                           _fill("Name", "no spaces, please", "Create queue")),
    "key-made": ("/console/create-key", _fill("Name", f"a key for {RIGHT_TO_LEFT}", "Create key")),
    "key-refused": ("/console/create-key", _overreach),
}  # fmt: skip
