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
PAUSE: Final[Examples] = {"ten_minutes": _example("For ten minutes", {"resume_in_seconds": 600})}
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
}
DEQUEUE: Final[Examples] = {
    "batch": _example(
        "Up to ten tasks, waiting five seconds for the first",
        {"batch_size": 10, "wait_seconds": 5, "worker": "host-1:4711"},
    ),
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
