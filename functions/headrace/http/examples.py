"""Example bodies for the OpenAPI document; a test sends each of them."""

from typing import Any, Final, TypeAlias

Examples: TypeAlias = dict[str, Any]


def _example(summary: str, value: Any) -> dict[str, Any]:  # noqa: ANN401  any JSON value
    return {"summary": summary, "value": value}


CREATE_QUEUE: Final[Examples] = {
    "defaults": _example("With the defaults", {"name": "ngsi.notify"}),
    "settings": _example(
        "Long tasks, retried at chosen times",
        {
            "name": "reports.monthly",
            "description": "PDF reports of all cities",
            "keepalive_timeout_in_seconds": 300,
            "retry_strategy": {"kind": "intervals", "intervals": [60, 600, 3600], "jitter": 0},
            "dead_letter_queue_config": {"retention_period_in_seconds": 2592000},
        },
    ),
}
REPLACE_QUEUE: Final[Examples] = {
    "slower": _example(
        "Slower, and only if nobody else has changed it",
        {
            "version": 1,
            "dequeuing_settings": {
                "rate_limiting": {"max_tokens": 1000, "interval": 1, "interval_unit": "SECONDS"}
            },
        },
    ),
}
CREATE_KEY: Final[Examples] = {
    "producer": _example(
        "For sensors: they only put notifications in",
        {"name": "sensors", "role": "producer", "queues": ["ngsi.notify"]},
    ),
    "operator": _example(
        "For people who look after all queues of one kind",
        {"name": "ada", "role": "operator", "queues": ["ngsi.*"]},
    ),
}
ROTATE_KEY: Final[Examples] = {
    "an_hour": _example("With an hour to hand it out", {"overlap_seconds": 3600})
}
PAUSE: Final[Examples] = {"ten_minutes": _example("For ten minutes", {"resume_in_seconds": 600})}
PUT_SCHEDULE: Final[Examples] = {
    "cron": _example(
        "Every five minutes on weekdays, by the clocks of Madrid",
        {
            "cron": "*/5 8-18 * * MON-FRI",
            "timezone": "Europe/Madrid",
            "payload": {"report": "air-quality"},
            "tags": {"service": "smartcity"},
            "expires_in_seconds": 300,
        },
    ),
    "last_weekday": _example("On the last weekday of each month", {"cron": "0 18 LW * *"}),
    "every": _example("Every 90 seconds, not yet", {"every_seconds": 90, "paused": True}),
}
PUT_WORKER: Final[Examples] = {
    "busy": _example(
        "Eight at a time, one at work",
        {
            "queues": ["mail"],
            "concurrency": 8,
            "running": ["tsk_01kc5m3v0e8x2r7n4q9w6y1z0a"],
            "version": "1.4.2",
            "started_at": "2026-11-21T08:00:00Z",
        },
    ),
}
RECOUNT: Final[Examples] = {"begin": _example("The first step", {"cursor": None})}
PURGE: Final[Examples] = {"dead": _example("Drop the dead letters", {"states": ["DEAD"]})}
ENQUEUE: Final[Examples] = {
    "one": _example("One task, due at once", {"tasks": [{"payload": {"room": "Room1"}}]}),
    "later": _example(
        "An id of one's own, due in a minute, tried three times",
        {
            "tasks": [
                {
                    "id": "invoice-2026-0042",
                    "payload": {"invoice": 42},
                    "delay_in_seconds": 60,
                    "retry_strategy": {"kind": "fixed", "max_retries": 2, "base_seconds": 30},
                    "tags": {"service": "billing"},
                }
            ]
        },
    ),
    "deduped": _example(
        "One at a time for each room; a newer reading takes the place of one that waits",
        {
            "tasks": [
                {
                    "payload": {"room": "Room1", "temperature": 23.5},
                    "dedupe_key": "Room1",
                    "overwrite_on_duplicate": ["payload"],
                }
            ]
        },
    ),
}
DEQUEUE: Final[Examples] = {
    "batch": _example(
        "Up to ten tasks, waiting five seconds for the first",
        {"batch_size": 10, "wait_seconds": 5, "worker": "host-1:4711"},
    ),
}
DEQUEUE_MANY: Final[Examples] = {
    "preference": _example(
        "Mail first, and what else there is",
        {"queues": ["mail", "thumbnails"], "batch_size": 10, "worker": "host-1:4711"},
    ),
    "due": _example(
        "Whatever fell due first",
        {"queues": ["mail", "thumbnails"], "batch_size": 10, "order": "due"},
    ),
}
OPEN_LEASE: Final[Examples] = {
    "batch": _example(
        "For a batch that is extended every 20 seconds",
        {"name": "entities-2026-11-21T08:00", "keepalive_timeout_in_seconds": 60},
    ),
    "nameless": _example("For a minute, under no name", {}),
}
_HELD: Final = {"task_id": "tsk_01kc5m3v0e8x2r7n4q9w6y1z0a", "lease_id": "lse_8q2w4e6r.1"}
REPORT: Final[Examples] = {
    "succeeded": _example(
        "Done", {"reports": [{**_HELD, "status": "SUCCEEDED", "result": {"rows": 12}}]}
    ),
    "inflight": _example(
        "Still at it: a heartbeat", {"reports": [{**_HELD, "status": "INFLIGHT", "progress": 0.4}]}
    ),
    "failed": _example(
        "Failed, to be tried again",
        {
            "reports": [
                {
                    **_HELD,
                    "status": "FAILED",
                    "error": {"type": "Timeout", "message": "the database did not answer"},
                }
            ]
        },
    ),
    "moved": _example(
        "Handed on to the next station",
        {
            "reports": [
                {
                    **_HELD,
                    "status": "MOVED",
                    "to_queue": "ngsi.entities",
                    "payload": {"entity": "Room1"},
                }
            ]
        },
    ),
    "spawned": _example(
        "Done, and its parts are tasks of their own, made in the same write",
        {
            "reports": [
                {
                    **_HELD,
                    "status": "SUCCEEDED",
                    "spawn": [
                        {"queue": "ngsi.entities", "payload": {"entity": "Room1"}},
                        {"queue": "ngsi.entities", "payload": {"entity": "Room2"}},
                    ],
                }
            ]
        },
    ),
}
_IDS: Final = {"ids": ["tsk_01kc5m3v0e8x2r7n4q9w6y1z0a", "invoice-2026-0042"]}
DELETE_TASKS: Final[Examples] = {
    "ids": _example("Two tasks", _IDS),
    "dry_run": _example(
        "Tell how many dead tasks of one service there are",
        {"filter": {"state": "DEAD", "tags": {"service": "billing"}}, "dry_run": True},
    ),
}
RESTART_TASKS: Final[Examples] = {
    "dead": _example(
        "All dead ones whose latest error was a timeout",
        {"filter": {"state": "DEAD", "error": "timeout"}},
    ),
    "replay": _example(
        "The first thousand of what succeeded since eight o'clock",
        {
            "filter": {"state": "SUCCEEDED", "scheduled_after": "2026-11-21T08:00:00Z"},
            "limit": 1000,
        },
    ),
}
RUN_TASKS: Final[Examples] = {"all": _example("Everything that waits", {"filter": {}})}
MOVE_TASKS: Final[Examples] = {
    "dead": _example(
        "Put the dead aside", {"filter": {"state": "DEAD"}, "to_queue": "ngsi.quarantine"}
    ),
    "ids": _example("Two tasks", {**_IDS, "to_queue": "ngsi.quarantine"}),
}
NOTIFICATION: Final[Examples] = {
    "room": _example(
        "What a context broker sends",
        {
            "subscriptionId": "5ce3dbb331dfe9b66df2d2c2",
            "data": [
                {
                    "id": "Room1",
                    "type": "Room",
                    "temperature": {"type": "Number", "value": 23.5, "metadata": {}},
                }
            ],
        },
    ),
}
