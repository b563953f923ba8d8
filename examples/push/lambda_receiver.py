"""A receiver as a Lambda function, whose ARN is the target's `lambda`.

Nobody but who may invoke it can call it, so there is no signature.
"""

from typing import Any


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Do one task; what is returned is its result, and an error that is raised a failure."""
    payload = event["payload"]
    return {"id": event["id"], "attempt": event["attempt"], "sent": payload["to"]}
