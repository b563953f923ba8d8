"""Every name the tables use, once.  template.yaml declares the keys; a test compares."""

from typing import Final

TASK_ID: Final = "task_id"
QUEUE_STATE: Final = "queue#state"
SCHEDULED_AT: Final = "scheduled_at"
EXPIRES_AT: Final = "expires_at"
TTL: Final = "ttl"
DUE_AT: Final = "due_at"
GROUP_KEY: Final = "group_key"
BY_STATE: Final = "by_state"
ENDED_IN: Final = "ended_in"  # only on tombstones

PK: Final = "pk"
SK: Final = "sk"
BODY: Final = "body"
VERSION: Final = "version"
NOTE: Final = "note"
WRITTEN_BY: Final = "written_by"

MATCHES: Final = "match:{}"  # the kind under which a queue's index of values is kept
