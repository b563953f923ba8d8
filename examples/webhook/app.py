"""A web-hook caller: `headrace work examples.webhook.app:app`.

No more than ten calls a second, however many workers there are: the queue has the limit.  The
handler is a coroutine, so one worker waits for many slow servers at once.
"""

import hashlib
import hmac
import os
from functools import cache
from typing import Any

import httpx2 as httpx
import msgspec

from headrace import App, Context, Reject, Retry

app = App(queue="webhooks")
app.queue(
    "webhooks",
    dequeuing_settings={
        "rate_limiting": {"max_tokens": 10, "interval": 1, "interval_unit": "SECONDS"}
    },
    retry_strategy={"max_retries": 10, "base_seconds": 5, "max_delay_seconds": 21_600},
)

_LATER = frozenset({408, 425, 429})
_CLIENT_ERROR, _SERVER_ERROR = 400, 500
_LONGEST_WAIT = 86_400.0


@cache
def _http() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=30, follow_redirects=False)


@app.task(timeout=60)
async def call(ctx: Context, url: str, event: dict[str, Any]) -> int:
    """Post *event* to *url*; returns the status.

    The body is signed, and ``Idempotency-Key`` is the same in every attempt.  A server that is
    busy is asked again when it says, one that is broken by the queue's retry strategy, and one
    that does not want the call is left alone.
    """
    body = msgspec.json.encode(event)
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": ctx.id,
        "X-Signature-256": "sha256=" + _signature(body),
    }
    answer = await _http().post(url, content=body, headers=headers)
    if answer.status_code in _LATER or answer.status_code >= _SERVER_ERROR:
        raise Retry(f"{url} answered {answer.status_code}", delay=_requested_wait(answer))
    if answer.status_code >= _CLIENT_ERROR:
        raise Reject(f"{url} does not want this: {answer.status_code}")
    return answer.status_code


def _signature(body: bytes) -> str:
    return hmac.new(os.environ["WEBHOOK_SECRET"].encode(), body, hashlib.sha256).hexdigest()


def _requested_wait(answer: httpx.Response) -> float | None:
    """Return the seconds that the server asks to wait; None: as the queue says."""
    try:
        return min(max(float(answer.headers["Retry-After"]), 0.0), _LONGEST_WAIT)
    except (KeyError, ValueError):
        return None


if __name__ == "__main__":
    made = call.enqueue(url="http://127.0.0.1:9000/hook", event={"order": 17, "state": "paid"})
    print(made.outcome, made.id)
