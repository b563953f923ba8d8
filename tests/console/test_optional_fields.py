"""Each page answers, whichever optional fields its records have or lack."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from headrace.domain.access import Role
from headrace.domain.batch import BatchEvent, Callback
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.push import Target
from headrace.domain.queue_settings import (
    AlertSettings,
    DequeuingSettings,
    OnEnd,
    PrioritySettings,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import RetryStrategy
from headrace.domain.schedule import Missed, ScheduleSettings
from headrace.domain.task import DedupeUntil, OnExpiry, Priority
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.delivery.reports import ReportStatus, WorkerError
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.ops.shared.audit import AuditRecord
from tests.browser.places import Names, pages
from tests.console.conftest import Browser
from tests.console.test_action_page import look


def bare(admin: Browser) -> list[str]:
    """Fill a console with records that have only their required fields; return all tasks."""
    admin.queue("mail")
    ids = admin.put("mail", "null", "null", "null", "null")
    dead, done, _running = admin.take("mail", 3, worker="")
    admin.say(dead, ReportStatus.FAILED, retryable=False)
    admin.say(done, ReportStatus.SUCCEEDED)
    every = ScheduleSettings(every_seconds=60, payload="null", paused=True)
    admin.use.schedules.put("mail", "nightly", every)
    admin.use.task_batches.create({}, batch_id="night")
    admin.use.keys.create(BOOTSTRAP, "station", Role.VIEWER, ("mail",))
    admin.use.workers.alive(WorkerHeartbeat("ada:1", (), admin.clock()))
    audit = admin.use.audit
    audit.write(audit.new_name(), AuditRecord(admin.clock(), "ada", "delete"))
    return [dead.id, *ids]


def rich(admin: Browser) -> list[str]:
    """Fill a console with records that have every field; return all tasks."""
    now = admin.clock()
    admin.queue("ops")
    admin.use.queues.create("mail", QueueSettings(
        description="Letters",
        retry_strategy=RetryStrategy(max_retries=3, base_seconds=0),
        dequeuing_settings=DequeuingSettings(
            max_inflight_tasks=50, rate_limiting=RateLimiting(500, 2)),
        groups=GroupSettings(GroupMode.FAIR, {"acme": 2.0}, 9),
        on_end=OnEnd("ops"),
        alerts=AlertSettings("ops", 300, dead_per_minute=10, no_workers_for_seconds=120),
        indexed_fields=("tag:tenant",),
        shards=2,
    ))  # fmt: skip
    again = RetryStrategy(max_retries=5, base_seconds=0)
    last = TaskSpec("{}", tags={"step": "last"})
    on = {BatchEvent.SUCCEEDED: Callback("mail", last), BatchEvent.FAILED: Callback("mail", last)}
    admin.use.task_batches.create(on, batch_id="night", total=5)
    ids = [
        admin.put(
            "mail", '{"task": "mail.send", "args": {"to": "ada"}}', tags={"tenant": "acme"},
            expires_at=now + timedelta(days=2), keepalive=60, retry=again,
            dedupe_key=f"k{number}", dedupe_until=DedupeUntil.START, batches=("night",),
            group_key="acme", on_expiry=OnExpiry.DROP, note="a note",
        )[0]
        for number in range(4)
    ]  # fmt: skip
    dead, done, moved = admin.take("mail", 3)
    error = WorkerError("TimeoutError", "no answer", "Traceback: …")
    admin.say(dead, ReportStatus.INFLIGHT, progress='{"rows": 4}')
    admin.say(dead, ReportStatus.FAILED, error=error)
    admin.clock.forward(1)
    [dead] = [task for task in admin.take("mail", 9) if task.id == dead.id]
    admin.say(dead, ReportStatus.FAILED, error=error, retryable=False)
    admin.say(done, ReportStatus.SUCCEEDED, result='{"sent": true}',
              spawn=(("ops", TaskSpec('{"task": "ops.next", "args": {}}')),))  # fmt: skip
    admin.say(moved, ReportStatus.MOVED, to_queue="ops")
    admin.use.schedules.put("mail", "nightly", ScheduleSettings(
        cron="0 3 * * *", timezone="Europe/Madrid", payload='{"a": 1}', tags={"a": "b"},
        dedupe_key="k", dedupe_until=DedupeUntil.START, missed=Missed.ALL, on_expiry=OnExpiry.DROP,
        expires_in_seconds=60, retry_strategy=RetryStrategy(max_retries=2), paused=True,
        note="a note",
    ))  # fmt: skip
    admin.use.schedules.run("mail", "nightly")
    admin.use.keys.create(
        BOOTSTRAP, "station", Role.WORKER, ("mail",), expires_at=now + timedelta(days=1)
    )
    beat = WorkerHeartbeat("ada:1", ("mail", "ops"), now, 8, (ids[3],), "1.4.2")
    admin.use.workers.alive(beat)
    target = Target("https://example.com/tasks", headers={"Authorization": "hush"})
    admin.use.queues.replace("mail", replace(admin.settings("mail"), target=target))
    admin.use.queues.pause("mail", resume_in_seconds=60, reason="stocktaking")
    audit = admin.use.audit
    audit.write(audit.new_name(), AuditRecord(
        now, "ada", "delete", "mail", {"state": "DEAD", "to_queue": "sms"}, [dead.id], 3, 2,
        "request", "key_1", "because", {"shards": 1}, {"shards": 2}, "act_1", {"inflight": 1},
        "cancelled",
    ))  # fmt: skip
    return [dead.id, *ids]


@pytest.mark.parametrize("fill", [bare, rich])
def test_every_page_answers(admin: Browser, fill: Callable[[Browser], list[str]]) -> None:
    dead, *ids = fill(admin)
    begun = admin.use.actions.begin_all(BulkAction.DELETE, ["mail"], TaskFilter())
    admin.use.actions.cancel(begun.id)  # before its tasks were counted
    admin.use.action_work.run()
    seen = look(admin, "/console/queues/mail?state=DEAD", "restart").url.rpartition("/")[2]
    key = next(key.id for key in admin.api_keys() if key.name == "station")
    names = Names("mail", dead, "nightly", key, seen.partition("?")[0], "night", begun.id)
    places = {
        *pages(names).values(),
        *(f"/console/tasks/{task_id}" for task_id in ids),
        *(f"/console/queues/mail?state={state}" for state in ("INFLIGHT", "SUCCEEDED", "DEAD")),
        "/console/worker?name=ada%3A1",
        "/console/worker/stop?name=ada%3A1",
    }

    assert len(places) > 40
    wrong = {place: shown.status for place in places if (shown := admin.get(place)).status != 200}
    expected = {"/console/no/such/page": 404, "/console/sign-in": 303, "/console/worker": 303}
    assert wrong == expected


def test_a_viewer_sees_the_notes_of_a_task_and_of_a_schedule(admin: Browser) -> None:
    task, viewer = rich(admin)[1], admin.as_role(Role.VIEWER)

    for path in (f"tasks/{task}", "queues/mail/schedules/nightly"):
        assert "Note a note" in viewer.get(f"/console/{path}").page.text


# -- priorities ------------------------------------------------------------------------------------


def ranked(browser: Browser) -> list[str]:
    """Fill a queue that has priorities; return the ids of its tasks, high before low."""
    browser.queue("mail", priority=PrioritySettings())
    return [
        task for level in Priority for task in browser.put("mail", f'"{level}"', priority=level)
    ]


def test_a_list_has_a_column_and_a_filter_for_them(admin: Browser) -> None:
    high, normal, low = ranked(admin)

    table = admin.get("/console/queues/mail").page.one("table", class_="tasks").text
    filtered = admin.get("/console/queues/mail?q=priority:high").body

    assert "Priority" in table
    assert all(level in table for level in Priority)
    assert high in filtered
    assert normal not in filtered
    assert low not in filtered
    wrong = admin.get("/console/queues/mail?q=priority:urgent").text
    assert "must be one of high, normal, low" in wrong


# -- groups ----------------------------------------------------------------------------------------

FAIR = GroupSettings(GroupMode.FAIR, {"acme": 4.0})


def test_a_queue_tells_whose_turns_are_next(admin: Browser) -> None:
    admin.queue("mail", groups=FAIR)
    assert "No task waits for its turn." in admin.get("/console/queues/mail?tab=turns").text
    admin.put("mail", "1", "2", group_key="<b>acme</b>")
    admin.put("mail", "3")

    shown = admin.get("/console/queues/mail?tab=turns")

    assert "<b>acme</b>" in shown.text
    assert "<b>acme</b>" not in shown.body
    assert "without a key" in shown.text
    assert re.search(r"2 of the next turns, [0-9.]+/s, oldest due for [0-9.]+ m?s", shown.text)
    assert "fair, 1 weighted" in admin.get("/console/queues/mail?tab=settings").text


def test_a_task_says_its_group_and_turn_and_lists_take_one(admin: Browser) -> None:
    admin.queue("mail", groups=FAIR)
    (one,) = admin.put("mail", group_key="acme")
    (other,) = admin.put("mail", group_key="beta")

    shown = admin.get(f"/console/tasks/{other}").text
    assert "Group beta" in shown
    assert "Turn 0" in shown
    listed = admin.get("/console/queues/mail?q=group:acme").body
    assert one in listed
    assert other not in listed
