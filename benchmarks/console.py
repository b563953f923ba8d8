"""How long the console's pages take with many tasks in a queue: the whole HTTP answer."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Final, Self
from urllib.parse import urlencode, urlsplit

import urllib3
from rich.progress import Progress

from benchmarks.results import Bar, PartOutcome, median, percentile, table
from benchmarks.sizes import BATCH, Sizes
from headrace.client.client import Client
from headrace.client.sending import Failure, NewTask, Report
from infra.launch import launched
from tests.browser.places import Names, pages

QUEUE: Final = "crowded"
MEDIAN_MS: Final = 300
_ENDED: Final = 0.02
"""Of all tasks, how many die, and how many succeed."""
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class PageFigure:
    """What the answers of one page came to; size in bytes."""

    page: str
    address: str
    p50_ms: float
    p99_ms: float
    size: int


def run(sizes: Sizes, progress: Progress) -> PartOutcome:
    """Fill a queue and ask for each page, one after the other."""
    depth, rounds = max(sizes.depths), max(5, sizes.call_rounds // 10)
    with launched() as service, Client(service.url, service.admin_key) as client:
        filling = progress.add_task("console: filling a queue", total=depth)
        names = _fill(client, depth, lambda: progress.advance(filling, BATCH))
        with Visitor(service.url, service.admin_key) as visitor:
            places = pages(replace(names, set=visitor.dry_run())) | _requested()
            bar = progress.add_task("console: pages", total=len(places))
            figures = []
            for page, address in places.items():
                figures.append(_figure(page, address, visitor, rounds))
                progress.advance(bar)
    shown = table(f"Pages with {depth:,} tasks in the queue ({rounds} each)",
                  "Page", "p50 ms", "p99 ms", "KiB")  # fmt: skip
    for one in figures:
        shown.add_row(one.page, f"{one.p50_ms:.0f}", f"{one.p99_ms:.0f}", f"{one.size / 1024:.0f}")
    slowest = max(one.p50_ms for one in figures)
    return PartOutcome(
        figures={"tasks": depth, "pages": [asdict(one) for one in figures]},
        tables=[shown],
        notes=["One visitor, who knows the style and script already; data in memory."],
        bars=[Bar(f"Slowest page, {depth:,} tasks", slowest, MEDIAN_MS, at_most=True, unit="ms")],
    )


def _requested() -> dict[str, str]:
    """Return the queue's page as it is asked for in other ways."""
    queries: dict[str, dict[str, str | int]] = {
        "ready": {"state": "READY", "limit": 250},
        "dead": {"state": "DEAD"},
        "error found": {"state": "DEAD", "error": "no answer"},
        "error nowhere": {"state": "DEAD", "error": "nothing has this"},
        "tag": {"tag": "shift=night"},
        "tag nowhere": {"tag": "shift=never"},
        "worker": {"worker": "bench:2"},
        "attempts": {"attempts": 1, "order": "desc"},
    }
    return {
        f"queue, {name}": f"/console/queues/{QUEUE}?{urlencode(query)}"
        for name, query in queries.items()
    }


def _fill(client: Client, depth: int, done: Callable[[], object]) -> Names:
    """Put *depth* tasks in and let some end; return what pages can be asked for."""
    client.create_queue(QUEUE, retry_strategy={"max_retries": 0, "kind": "fixed"})
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda n: _put(client, n), range(0, depth, BATCH)):
            done()
    dead = ""
    for status in ("FAILED", "SUCCEEDED"):
        for number in range(max(1, int(depth * _ENDED) // BATCH)):
            leased = client.dequeue(QUEUE, batch_size=BATCH, worker=f"bench:{number % 5}").tasks
            error = Failure("TimeoutError", f"no answer, {number}") if status == "FAILED" else None
            client.report(QUEUE, [
                Report(task_id=task.id, lease_id=task.lease.id, status=status, error=error)
                for task in leased
            ])  # fmt: skip
            if error:
                dead = leased[0].id
    client.put_schedule(QUEUE, "nightly", cron="0 3 * * *", paused=True)
    client.create_batch(id="night", total=3)
    key = client.create_key("on call", "viewer", ["*"]).id
    return Names(QUEUE, dead, "nightly", key, "", "night")


def _put(client: Client, number: int) -> None:
    shift = "night" if number % 200 == 0 else "day"
    payload = {"sensor": f"urn:{number}", "values": list(range(40))}
    client.enqueue_many(QUEUE, [NewTask(payload=payload, tags={"shift": shift})] * BATCH)


def _figure(page: str, address: str, visitor: "Visitor", rounds: int) -> PageFigure:
    visitor.get(address)
    measured = [visitor.timed(address) for _ in range(rounds)]
    seconds: Sequence[float] = [one for one, _ in measured]
    return PageFigure(page, address, 1000 * median(seconds), 1000 * percentile(seconds, 99),
                  measured[-1][1])  # fmt: skip


class Visitor:
    """Somebody signed in, over one connection."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._http = urllib3.PoolManager()
        self._cookies = ""
        door = self._http.request("GET", f"{url}/console/sign-in")
        token = re.findall(r'name="token" value="([^"]+)"', door.data.decode())[0]
        entered = self._http.request(
            "POST", f"{url}/console/sign-in", body=urlencode({"key": key, "token": token}),
            headers={**_FORM, "Cookie": "; ".join(_given(door))}, redirect=False,
        )  # fmt: skip
        self._cookies = "; ".join(_given(entered))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.clear()

    def get(self, address: str) -> bytes:
        """Return a page."""
        url = f"{self._url}{address}"
        answer = self._http.request("GET", url, headers={"Cookie": self._cookies}, redirect=False)
        return answer.data

    def dry_run(self) -> str:
        """Look at some dead tasks as if to restart them; return the name of what was seen."""
        requested = f"/console/queues/{QUEUE}?state=DEAD"
        token = re.findall(r'name="token" value="([^"]+)"', self.get(requested).decode())[0]
        matching = f"/console/queues/{QUEUE}/matching?state=DEAD"
        looked = self.post(matching, [("token", token), ("action", "restart")])
        self.get(looked)
        return urlsplit(looked).path.rpartition("/")[2]

    def post(self, address: str, fields: Sequence[tuple[str, str]]) -> str:
        """Send a form; return the address that it leads to."""
        answer = self._http.request(
            "POST", f"{self._url}{address}", body=urlencode(fields),
            headers={**_FORM, "Cookie": self._cookies}, redirect=False,
        )  # fmt: skip
        return answer.headers["Location"]

    def timed(self, address: str) -> tuple[float, int]:
        """Return how many seconds a page took, and its size."""
        started = time.perf_counter()
        size = len(self.get(address))
        return time.perf_counter() - started, size


def _given(answer: urllib3.BaseHTTPResponse) -> Iterator[str]:
    for line in answer.headers.getlist("Set-Cookie"):
        yield line.partition(";")[0]
