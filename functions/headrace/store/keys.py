"""Every name the tables use, once.  template.yaml declares the keys; a test compares."""

from typing import Final

TASK_ID: Final = "task_id"
QUEUE_STATE: Final = "queue#state"
SCHEDULED_AT: Final = "scheduled_at"
EXPIRES_AT: Final = "expires_at"
TTL: Final = "ttl"
BY_STATE: Final = "by_state"

PK: Final = "pk"
SK: Final = "sk"
BODY: Final = "body"
VERSION: Final = "version"
MARK: Final = "mark"
WRITTEN_BY: Final = "written_by"
