"""Every name the tables use, once.  template.yaml declares the keys; a test compares."""

from typing import Final

TASK_ID: Final = "task_id"
QUEUE_STATE: Final = "queue#state"
SCHEDULED_AT: Final = "scheduled_at"
EXPIRES_AT: Final = "expires_at"
TTL: Final = "ttl"
BY_STATE: Final = "by_state"
SPENT: Final = "spent"  # only on what is left of a task that is gone

PK: Final = "pk"
SK: Final = "sk"
BODY: Final = "body"
VERSION: Final = "version"
KEY_LOCK: Final = "mark"
NOTE: Final = "note"
WRITTEN_BY: Final = "written_by"

SLOTS: Final = "slots:{}"  # the kind under which the pools of a queue are kept
HELD: Final = "held"

BUCKETS: Final = "bucket"  # the kind under which rate limits are kept
GIVEN: Final = "given"
RATE: Final = "rate"
SINCE: Final = "since"

GROUPS: Final = "lease"  # the kind under which group leases are kept
QUEUES: Final = "queues"
