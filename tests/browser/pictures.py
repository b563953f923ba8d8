"""`python -m tests.browser.pictures`: the README's pictures, of an hour that never was.

The console runs in this process over a store in memory, with a clock in hand: pages of the real
thing, always the same.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from playwright.sync_api import BrowserContext, Route

from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Task
from headrace.ops.delivery.reports import ReportStatus, WorkerError
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.browser.chrome import Colours, Window, chromium, opened
from tests.console.conftest import HOST, KEY, SECRET, Browser
from tests.manual_clock import ManualClock
from tests.streamed import Streamed

_INTO: Final = Path(__file__).parents[2] / "docs" / "pictures"
_WORKERS: Final = ("worker-1.eu-south-2:4711", "worker-2.eu-south-2:90", "etl-7.internal:31337")
_BROKEN_AT: Final = 38  # the minute in which the mail server stops answering
_TIMEOUT: Final = WorkerError("TimeoutError", "no answer from smtp.example.org after 30 s", "")
_REFUSED: Final = WorkerError(
    "SMTPRecipientsRefused", "550 5.1.1 mailbox unavailable: nobody@example.org", ""
)


def main() -> None:
    """Let the hour pass, and draw it."""
    console = hour()
    dead = console.use.inspect.list("mail", descending=True, limit=250).tasks
    task = next(t for t in dead if t.attempts > 1 and t.finished_at)
    shots: tuple[tuple[str, str, Colours, int], ...] = (
        ("queues", "/console", "light", 480),
        ("queue", "/console/queues/mail?state=DEAD&limit=25", "dark", 960),
        ("errors", "/console/errors", "light", 400),
        ("task", f"/console/tasks/{task.id}", "light", 740),
    )
    _INTO.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, path, colours, height in shots:
            with opened(browser, Window(1280, height, colours, script=False)) as (context, page):
                serve(console, context)
                page.goto(f"https://{HOST}{path}")
                page.screenshot(path=_INTO / f"{name}.png")


def serve(console: Browser, context: BrowserContext) -> None:
    """Let *console* answer whatever pages of *context* ask for."""
    context.route("**/*", lambda route: _answer(console, route))


def _answer(console: Browser, route: Route) -> None:
    url = urlsplit(route.request.url)
    shown = console.get(f"{url.path}?{url.query}" if parse_qsl(url.query) else url.path)
    headers = {name: value for name, value in shown.headers.items() if name != "content-length"}
    route.fulfill(status=shown.status, headers=headers, body=shown.body)


def hour() -> Browser:
    """Return a console over an hour of mail that begins to fail."""
    clock = ManualClock()
    settings = Settings(admin_key=KEY, settings_ttl_seconds=1, session_secret=SECRET)
    stream = Streamed(SqliteStore(), clock)
    console = Browser(clock, build(settings, stream.store, now=clock), stream=stream).sign_in()
    twice = RetryStrategy(kind=Backoff.FIXED, max_retries=1, base_seconds=30, jitter=0)
    about = {"mail": "Outgoing mail, one task a message.",
             "ngsi.notify": "Notifications as the context broker sends them."}  # fmt: skip
    for name in ("billing.invoices", "mail", "ngsi.entities", "ngsi.notify", "thumbnails"):
        console.queue(name, retry_strategy=twice, description=about.get(name, ""),
                      history_retention_in_seconds=604_800)  # fmt: skip
    console.put("billing.invoices", *['{"invoice": 7}'] * 30, delay_in_seconds=18_000)
    console.use.queues.pause("billing.invoices", resume_in_seconds=14_400)
    chance = random.Random(7)
    for minute in range(60):
        _minute(console, chance, minute)
        clock.forward(60 - 8)
    return console.sign_in()  # anew: nobody asked for a page for an hour


def _minute(console: Browser, chance: random.Random, minute: int) -> None:
    put = console.put
    for number in range(chance.randint(5, 9)):
        put(
            "mail",
            f'{{"to": "user{minute * 9 + number}@example.org", "template": "invoice"}}',
            tags={"service": chance.choice(("billing", "news")), "tenant": f"t{number % 4}"},
        )
    put("ngsi.notify", *['{"type": "AirQualityObserved"}'] * chance.randint(14, 24))
    put("thumbnails", *['{"width": 320}'] * chance.randint(0, 6))
    console.clock.forward(4)
    broken = minute >= _BROKEN_AT

    def mail(task: Task) -> None:
        if broken and chance.random() < 0.7:
            console.say(task, ReportStatus.FAILED, error=_TIMEOUT)
        elif chance.random() < 0.02:
            console.say(task, ReportStatus.FAILED, error=_REFUSED, retryable=False)
        else:
            console.say(task, ReportStatus.SUCCEEDED, result='{"sent": true}')

    def done(task: Task) -> None:
        console.say(task, ReportStatus.SUCCEEDED)

    def moved(task: Task) -> None:
        console.say(task, ReportStatus.MOVED, to_queue="ngsi.entities")

    _work(console, chance, "mail", 14, mail)
    _work(console, chance, "ngsi.notify", 22, moved)
    _work(console, chance, "ngsi.entities", 25, done)
    _work(console, chance, "thumbnails", 5, done)
    console.clock.forward(4)
    console.record()


def _work(
    console: Browser, chance: random.Random, queue: str, most: int, end: Callable[[Task], None]
) -> None:
    tasks: Any = console.take(queue, most, worker=chance.choice(_WORKERS))
    for task in tasks:
        console.clock.forward(chance.uniform(0.001, 0.05))
        end(task)


if __name__ == "__main__":
    main()
