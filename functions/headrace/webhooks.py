"""For programs that a queue pushes its tasks to: whether a request comes from that queue.

    from headrace import webhooks

    webhooks.verify(body, request.headers, secret)  # raises WebhookInvalid

The secret is what ``headrace queue secret NAME`` shows.
"""

import time
from collections.abc import Callable, Mapping

from headrace.domain.push_messages import (
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    TOLERANCE_SECONDS,
    WebhookInvalid,
    check_signature,
)

__all__ = ["TOLERANCE_SECONDS", "WebhookInvalid", "verify"]


def verify(
    body: bytes | str,
    headers: Mapping[str, str],
    secret: str,
    *,
    clock: Callable[[], float] = time.time,
) -> None:
    """Return if *body* was signed with *secret* at most five minutes ago.

    *body* is the request's, byte for byte, before anybody has parsed it; *headers* are all of
    them, names in whatever case; *clock* gives seconds since 1970.
    Raises WebhookInvalid for a request that must not be believed (answer 401), and ValueError for
    a *secret* that is none.
    """
    given = {name.lower(): value for name, value in headers.items()}
    check_signature(
        secret,
        message_id=given.get(ID_HEADER),
        timestamp=given.get(TIMESTAMP_HEADER),
        signatures=given.get(SIGNATURE_HEADER),
        body=body.encode() if isinstance(body, str) else body,
        now=clock(),
    )
