"""Fills a service as a week of work would: every state, real-looking names, awkward payloads."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headrace.client.client import Client
from headrace.client.queue_fields import RetryFields
from headrace.client.sending import Failure, NewTask, Report
from headrace.wire.service import NewKey

EVIL: Final = (
    "<script>document.title='broken in'; alert(1)</script>"
    '<img src=x onerror="alert(2)"><b onclick="alert(3)">&amp;</b>'
)
WIDE: Final = (
    "city.sensors.air-quality.observed.north-eastern-districts.normalised-and-deduplicated"
)
RIGHT_TO_LEFT: Final = "فشلت المهمة بسبب انتهاء المهلة أثناء انتظار الخادم"
HEBREW: Final = "המשימה נכשלה: אין תשובה מהשרת (קוד 504)"
EMOJI: Final = "🚰🌊👩🏽‍🔧 ok? 🏳️‍🌈 né ñ ß 漢字 かな"
BIG: Final = 12345678901234567890

_TIMEOUT: Final = Failure("TimeoutError", "no answer from smtp.example.org after 30 s", "")
_REFUSED: Final = Failure(
    "SMTPRecipientsRefused",
    "550 5.1.1 mailbox unavailable: nobody@example.org",
    'Traceback (most recent call last):\n  File "mail.py", line 41, in send\n'
    '    server.send_message(message)\n  File "smtplib.py", line 902, in sendmail\n'
    "    raise SMTPRecipientsRefused(senderrs)\n",
)
_HOSTS: Final = ("worker-1.eu-south-2:4711", "worker-2.eu-south-2:90", "etl-7.internal:31337")


@dataclass(frozen=True, slots=True)
class Fixtures:
    """What the tests ask for by name."""

    viewer: NewKey
    operator: NewKey
    dead: str  #: a task of mail with two attempts
    evil: str  #: a dead task whose payload, tags and error are full of markup
    right_to_left: str
    large: str  #: a task with as much payload as may be
    waiting: str
    inflight: str
    succeeded: str


def fill(client: Client) -> Fixtures:
    """Create queues, tasks in every state, schedules and keys."""
    none: RetryFields = {"max_retries": 0, "kind": "fixed"}
    history = 604_800
    client.create_queue("mail", description="Outgoing mail, one task a message.",
                        retry_strategy={"max_retries": 1, "kind": "fixed", "base_seconds": 0},
                        history_retention_in_seconds=history)  # fmt: skip
    for name, description in (
        ("ngsi.notify", "Notifications as the context broker sends them."),
        ("ngsi.entities", "One entity a task, on its way into the warehouse."),
        ("billing.invoices", ""),
        (WIDE, "A queue whose name and description take more room than most, to see what yields."),
    ):
        client.create_queue(
            name, description=description, retry_strategy=none, history_retention_in_seconds=history
        )
    client.create_queue("thumbnails", dequeuing_settings={"max_inflight_tasks": 20})
    client.create_queue("nightly", description="Filled by schedules.")
    client.create_queue("empty")
    fixtures = Fixtures(
        viewer=client.create_key("grafana", "viewer", ["*"]),
        operator=client.create_key("on call", "operator", ["*"]),
        dead=_mail(client),
        succeeded=_done(client, "ngsi.notify", 240),
        inflight=_running(client, "ngsi.entities"),
        waiting=_waiting(client, "billing.invoices"),
        **_awkward(client),
    )
    _move(client, "ngsi.notify", "ngsi.entities", 24)
    _move(client, "ngsi.notify", WIDE, 6)
    _move(client, "ngsi.entities", "thumbnails", 12)
    client.put_schedule("nightly", "reconcile", cron="15 3 * * *", timezone="Europe/Madrid")
    client.put_schedule("nightly", "month-end", cron="0 6 1 * *", payload={"deep": True})
    client.put_schedule("mail", "digest", every_seconds=900, paused=True)
    client.create_batch(id="night", total=3)
    client.pause_queue("billing.invoices", 7200)
    work(client, fixtures.inflight)
    client.create_key("ci of the warehouse team", "producer", ["ngsi.*"])
    return fixtures


def work(client: Client, task: str) -> None:
    """Let three workers say what they are at, one of them asked to take no more.

    What looks for one that is alive does it again: silent for 75 seconds, they are late.
    """
    for host, running in zip(_HOSTS, ([task], [], []), strict=True):
        queues = ["mail", "ngsi.entities"] if running else ["ngsi.notify"]
        client.put_worker(
            host,
            queues=queues,
            concurrency=8,
            running=running,
            version="2026.11.24",
            started_at=datetime.now(UTC) - timedelta(hours=3),
        )
    client.quiet_worker(_HOSTS[2])


def let_die(client: Client, queue: str, count: int, message: str) -> list[str]:
    """Let *count* tasks of a queue in which nothing waits die of an error; return their ids."""
    done = client.enqueue_many(queue, [NewTask(payload={"n": n}) for n in range(count)])
    _fail(client, queue, Failure("TimeoutError", message), _HOSTS[0], retryable=False)
    return [str(each.id) for each in done]


def _mail(client: Client) -> str:
    """Let mails die of timeouts after two attempts, and of refusals after one."""
    tasks = [
        NewTask(payload={"to": f"user{n}@example.org", "subject": "Your invoice", "try": n},
                tags={"service": "billing", "tenant": f"t{n % 3}"})
        for n in range(7)
    ]  # fmt: skip
    ids = [str(done.id) for done in client.enqueue_many("mail", tasks)]
    for host in _HOSTS[:2]:
        _fail(client, "mail", _TIMEOUT, host)
    refused = [NewTask(payload={"to": "nobody@example.org", "n": n}, tags={"service": "news"})
               for n in range(5)]  # fmt: skip
    client.enqueue_many("mail", refused)
    _fail(client, "mail", _REFUSED, _HOSTS[2], retryable=False)
    client.enqueue_many("mail", [NewTask(payload={"to": "ada@example.org"})] * 12)
    _finish(client, "mail", 9)
    return ids[0]


def _fail(
    client: Client, queue: str, error: Failure, worker: str, *, retryable: bool = True
) -> None:
    while tasks := client.dequeue(queue, batch_size=25, worker=worker).tasks:
        _report(client, queue, tasks, status="FAILED", error=error, retryable=retryable,
                delay_in_seconds=0 if retryable else None)  # fmt: skip
        if retryable:
            return


def _finish(client: Client, queue: str, count: int, **more: Any) -> list[str]:
    tasks = client.dequeue(queue, batch_size=min(25, count), worker=_HOSTS[0]).tasks
    _report(client, queue, tasks, status="SUCCEEDED", **more)
    return [task.id for task in tasks]


def _report(client: Client, queue: str, tasks: Sequence[Any], **more: Any) -> None:
    held = ((task.id, task.lease.id) for task in tasks)
    client.report(queue, [Report(task_id=id_, lease_id=lease, **more) for id_, lease in held])


def _done(client: Client, queue: str, count: int) -> str:
    client.enqueue_many(queue, [
        NewTask(payload={"type": "AirQualityObserved", "id": f"urn:ngsi-ld:{n}", "no2": n % 90})
        for n in range(count)
    ])  # fmt: skip
    ids: list[str] = []
    while len(ids) < count * 0.8:
        ids += _finish(client, queue, 25, result={"rows": 4, "table": "air_quality"})
    return ids[0]


def _running(client: Client, queue: str) -> str:
    client.enqueue_many(queue, [NewTask(payload={"entity": n}) for n in range(60)])
    tasks = client.dequeue(
        queue, batch_size=8, worker=_HOSTS[1], keepalive_timeout_in_seconds=3600
    ).tasks
    _report(client, queue, tasks[:1], status="INFLIGHT", progress={"rows": 1_200, "of": 4_000})
    return tasks[0].id


def _waiting(client: Client, queue: str) -> str:
    soon = datetime.now(UTC) + timedelta(hours=5)
    done = client.enqueue_many(queue, [
        NewTask(payload={"invoice": n}, dedupe_key=f"inv-{n}",
                scheduled_at=soon + timedelta(minutes=n))
        for n in range(30)
    ])  # fmt: skip
    client.enqueue_many(queue, [NewTask(payload={"invoice": 100 + n}) for n in range(4)])
    return str(done[0].id)


def _move(client: Client, queue: str, to_queue: str, count: int) -> None:
    ready = itertools.islice(client.list_tasks(queue, state="READY"), count)
    client.move_tasks(queue, to_queue, ids=[task.id for task in ready])


def _awkward(client: Client) -> dict[str, str]:
    """Let tasks die whose payloads, tags and errors are hard to draw."""
    made = {
        "evil": NewTask(payload={"x": EVIL, "big": BIG},
                        tags={"<b>tag</b>": "<script>alert(4)</script>"}),
        "right_to_left": NewTask(payload={"ar": RIGHT_TO_LEFT, "he": HEBREW, "emoji": EMOJI},
                                 tags={"مدينة": "القاهرة", "emoji": EMOJI[:8]}),
        "large": NewTask(payload={"rows": ["x" * 120 + str(n) for n in range(2_000)]},
                         tags={"path": WIDE * 2}),
    }  # fmt: skip
    errors = (
        Failure(EVIL[:60], EVIL, EVIL),
        Failure("مهلة", f"{RIGHT_TO_LEFT} {EMOJI}", HEBREW),
        Failure("X" * 120, "no-space-to-break-a-line-at/" * 60, "y" * 9_000),
    )
    ids = {}
    for (name, task), error in zip(made.items(), errors, strict=True):
        ids[name] = str(client.enqueue_many(WIDE, [task])[0].id)
        _fail(client, WIDE, error, "w" * 200, retryable=False)
    return ids
