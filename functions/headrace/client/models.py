"""What the API answers, for programs: the structs of ``headrace.wire`` under the SDK's roof.

Instants are aware datetimes, durations seconds.  Members that a newer service adds are passed over.
Payload, result and progress are decoded when they are first read, by the codec of the client that
got them, so that one which cannot be read here costs nobody else anything.
"""

from headrace.client.codec import Codec
from headrace.wire.carried import Carrying, remember_decoder
from headrace.wire.queues import (
    Counts,
    Metrics,
    Point,
    Purged,
    Queue,
    Rates,
    Recount,
    Schedule,
    ScheduleInShort,
    Stats,
)
from headrace.wire.service import AuditEntry, Health, Key, NewKey, WorkerSeen
from headrace.wire.tasks import (
    Bulk,
    BulkResult,
    Count,
    Dequeued,
    Enqueued,
    Hop,
    Lease,
    LeasedTask,
    Reason,
    Reported,
    Spawned,
    Task,
    TaskError,
)

__all__ = [
    "AuditEntry",
    "Bulk",
    "BulkResult",
    "Count",
    "Counts",
    "Dequeued",
    "Enqueued",
    "Health",
    "Hop",
    "Key",
    "Lease",
    "LeasedTask",
    "Metrics",
    "NewKey",
    "Point",
    "Purged",
    "Queue",
    "Rates",
    "Reason",
    "Recount",
    "Reported",
    "Schedule",
    "ScheduleInShort",
    "Spawned",
    "Stats",
    "Task",
    "TaskError",
    "WorkerSeen",
    "remember_codec",
]


def remember_codec(answer: Carrying, codec: Codec) -> None:
    """Let what *answer* carries, a task or a schedule, be read by *codec* from now on."""
    remember_decoder(answer, codec.decode)
