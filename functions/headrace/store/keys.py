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
SPENT: Final = "spent"  # only on tombstones

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

LINES: Final = "line:{}"  # the kind under which the lines of a queue's groups are kept
LINE_PARTS: Final = 16  # partitions of them
TAIL: Final = "tail"  # of the line of a strict group: the last task that has taken a place,
BEFORE: Final = "prev"  # the one that was the last before,
SEQ: Final = "seq"  # and the place of the tail
GROUP_SLOT: Final = "s{}"  # of a line
MATCHES: Final = "match:{}"  # the kind under which a queue's index of values is kept
DELIVERED: Final = "turn"  # the kind under which the highest turns delivered are kept
TURN: Final = "turn"

GROUPS: Final = "lease"  # the kind under which group leases are kept
QUEUES: Final = "queues"
