"""Enqueue: the request, with each task that it makes, its route and its answer."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema, model_validator

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.limits import AnswerRoom
from headrace.domain.offload import Upload
from headrace.domain.offload import read as read_upload
from headrace.domain.plan import TaskSpec
from headrace.domain.task import DedupeUntil, Overwritable
from headrace.domain.task_fields import TASK_FIELDS, SetBy
from headrace.http.fields import (
    PLAIN,
    BatchId,
    Delay,
    Examples,
    Instant,
    Keepalive,
    Level,
    RequestBody,
    Tags,
    TaskId,
    TextWithin,
    contradiction,
    example,
    refusal,
    with_texts_of,
    within,
    wrong,
)
from headrace.http.parameters import QueueInPath
from headrace.http.queue_bodies import RetryStrategyBody
from headrace.http.rawjson import NULL, Payload
from headrace.http.routing import Routes
from headrace.http.tasks import task_answer
from headrace.runtime.wiring import current_service
from headrace.wire import tasks as task_wire
from headrace.wire.base import MaxRetries, Written, raw, to_json, word
from headrace.wire.tasks import EnqueueResults

if TYPE_CHECKING:
    from headrace.ops.tasks.enqueue import EnqueueResult

routes: Final = Routes("Tasks")


def _upload(value: object) -> Upload:
    """Return the upload that a reference stands for."""
    found = read_upload(value) if isinstance(value, str) else None
    if found is None:
        raise wrong("is no reference of an upload: take it from POST /v1/queues/{queue}/payloads")
    return found


PayloadRef: TypeAlias = Annotated[
    Upload,
    PlainValidator(_upload),
    WithJsonSchema({"type": "string", "description": "Of an upload that was granted."}),
]


def once_each(names: list[str]) -> list[str]:
    """Check that nothing is named twice, naming each place where it is."""
    again = [place for place, name in enumerate(names) if name in names[:place]]
    if again:
        raise refusal(*((place, wrong("is named before")) for place in again))
    return names


_GIVEN: Final = tuple(
    (field.name, field.api_name)
    for field in TASK_FIELDS
    if SetBy.ENQUEUE in field.set_by and field.name not in ("due_at", "payload_ref")
)


_DedupeKey: TypeAlias = Annotated[
    str, TextWithin(limits.DEDUPE_KEY_BYTES[1], limits.DEDUPE_KEY_BYTES[0])
]


class TaskOptionsBody(RequestBody):
    """What producers and schedules may say of a task."""

    tags: Tags | None = None
    dedupe_key: _DedupeKey | None = Field(
        default=None,
        description="While a task of the queue waits or is worked on under this key, no other "
        f"one is made (a schedule retries for a minute). Up to {limits.DEDUPE_KEY_BYTES[1]} bytes.",
    )
    dedupe_until: Annotated[DedupeUntil, Field(strict=False)] = Field(
        default=DedupeUntil.END,
        description="How long the dedupe_key keeps others out: until the task has ended (`end`), "
        "or until its first delivery (`start`). `start` needs a dedupe_key.",
    )
    keepalive_timeout_in_seconds: Keepalive | None = Field(
        default=None, description="How long a lease of the task lasts; else as the queue says."
    )
    retry_strategy: RetryStrategyBody | None = Field(
        default=None, description="Instead of the queue's."
    )
    priority: Level | None = Field(
        default=None,
        description="In a queue whose settings have `priority`: which of its due tasks come "
        "first. Left out, it is normal there.",
    )

    @model_validator(mode="after")
    def _has_a_dedupe_key(self) -> "TaskOptionsBody":
        if self.dedupe_until is DedupeUntil.START and self.dedupe_key is None:
            raise contradiction("needs a dedupe_key", "dedupe_until")
        return self


@with_texts_of(SetBy.ENQUEUE)
class NewTaskBody(TaskOptionsBody):
    """A task to create."""

    payload: Payload | None = Field(default=None, description="Left out, it is null.")
    payload_ref: PayloadRef | None = Field(
        default=None,
        description="Instead of a payload: one that was uploaded, from "
        "`POST /v1/queues/{queue}/payloads`. The task has the id that this is for.",
    )
    id: TaskId | None = Field(
        default=None, description="An id of your own makes the call safe to repeat."
    )
    scheduled_at: Instant | None = Field(default=None, description="Not delivered before.")
    delay_in_seconds: Delay | None = Field(default=None, description="Instead of scheduled_at.")
    expires_at: Instant | None = Field(default=None, description="Not delivered after.")
    unique_for_seconds: Annotated[float, within(limits.UNIQUE_SECONDS), PLAIN] | None = Field(
        default=None,
        description="With a dedupe_key: at most one task is made in each window of this length, "
        "even after that task has ended. The service chooses the id, so give none.",
    )
    batches: (
        Annotated[list[BatchId], Field(max_length=limits.TASK_BATCHES), AfterValidator(once_each)]
        | None
    ) = Field(default=None, description="Ids of batches that count the task.")

    @model_validator(mode="after")
    def _has_one_payload(self) -> "NewTaskBody":
        if self.payload_ref is None:
            return self
        if "payload" in self.model_fields_set:
            raise contradiction(
                "give either payload or payload_ref, not both", "payload", "payload_ref"
            )
        if "payload" in self.overwritten():
            raise contradiction(
                "cannot have payload with a payload_ref: that makes a new task",
                "overwrite_on_duplicate",
            )
        if self.id is not None and self.id != self.payload_ref.task_id:
            raise contradiction("must be the one that payload_ref is for, or left out", "id")
        return self

    @model_validator(mode="after")
    def _is_one_in_a_window(self) -> "NewTaskBody":
        unique = self.unique_for_seconds is not None
        if unique and self.dedupe_key is None:
            raise contradiction("needs a dedupe_key", "unique_for_seconds")
        if unique and (self.id is not None or self.payload_ref is not None):
            field = "id" if self.id is not None else "payload_ref"
            raise contradiction("excludes unique_for_seconds: the service chooses the id", field)
        return self

    @model_validator(mode="after")
    def _has_one_time(self) -> "NewTaskBody":
        if self.scheduled_at is None:
            return self
        if self.delay_in_seconds is not None:
            raise contradiction(
                "give either scheduled_at or delay_in_seconds, not both",
                "delay_in_seconds",
                "scheduled_at",
            )
        if self.expires_at is not None and self.expires_at <= self.scheduled_at:
            raise contradiction("must be after scheduled_at", "expires_at")
        return self

    def new_task(self) -> TaskSpec:
        """Return the entry as the use case takes it."""
        given = {name: getattr(self, api_name) for name, api_name in _GIVEN}
        if self.payload_ref is not None:
            given["id"] = self.payload_ref.task_id
        if self.dedupe_until is DedupeUntil.END:
            given["dedupe_until"] = None
        given |= {
            "payload": self.payload or NULL,
            "retry": self.retry_strategy.strategy() if self.retry_strategy else None,
            "tags": self.tags or {},
            "batches": tuple(self.batches or ()),
        }
        return TaskSpec(
            **given,
            upload=self.payload_ref,
            scheduled_at=self.scheduled_at,
            delay_in_seconds=self.delay_in_seconds,
            unique_for=self.unique_for_seconds,
            overwrite=self.overwritten(),
        )

    def overwritten(self) -> frozenset[Overwritable]:
        """Return the fields that a duplicate changes of the task that waits under its key."""
        return frozenset()


class TaskEntry(NewTaskBody):
    """One task to put into the queue."""

    overwrite_on_duplicate: Annotated[list[Overwritable], Field(max_length=5)] | None = Field(
        default=None,
        description="With a dedupe_key: what of this entry replaces that of a task that waits "
        "under the key.",
    )

    @model_validator(mode="after")
    def _has_a_key_to_meet_under(self) -> "TaskEntry":
        if self.overwrite_on_duplicate and self.dedupe_key is None:
            raise contradiction("needs a dedupe_key", "overwrite_on_duplicate")
        return self

    def overwritten(self) -> frozenset[Overwritable]:
        """Return the fields that a duplicate changes of the task that waits under its key."""
        return frozenset(self.overwrite_on_duplicate or ())


class EnqueueBody(RequestBody):
    """Tasks to put into a queue, each on its own."""

    tasks: Annotated[list[TaskEntry], Field(min_length=1, max_length=limits.BATCH)]

    @property
    def is_safe_to_repeat(self) -> bool:
        """Whether each entry has an id and no dedupe key.

        With a dedupe key the same entry could take effect again, after the task that holds the key
        has ended or was overwritten by another request.
        """
        return all(entry.id is not None and entry.dedupe_key is None for entry in self.tasks)


ENQUEUE: Final[Examples] = {
    "one": example("One task, due at once", {"tasks": [{"payload": {"room": "Room1"}}]}),
    "later": example(
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
    "priority": example(
        "Before what waits, in a queue with priorities",
        {"tasks": [{"payload": {"room": "Room1"}, "priority": "high"}]},
    ),
    "group": example(
        "For one tenant, in a queue whose groups take turns",
        {"tasks": [{"payload": {"room": "Room1"}, "group_key": "acme"}]},
    ),
    "deduped": example(
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


# ------------------------------------------------------------------------------------------ answers


def enqueued_answer(
    results: Iterable["EnqueueResult"], *, now: datetime, max_retries: MaxRetries
) -> task_wire.EnqueueResults:
    """Return the outcome of each entry of an enqueue."""
    shown = []
    room = AnswerRoom()
    for result in results:
        made: Written = None
        if result.task is not None:
            text = to_json(
                task_answer(result.task, now=now, max_retries=max_retries, payload=False)
            )
            if room.takes(text):  # tasks made long ago may have results and errors
                made = raw(text)
        shown.append(
            task_wire.Enqueued(
                outcome=word(result.outcome),
                id=result.id,
                task=made,
                queue=result.queue,
                detail=result.detail,
            )
        )
    return task_wire.EnqueueResults(results=shown)


# ------------------------------------------------------------------------------------------- routes


@routes.add("POST", "/v1/queues/{queue}/tasks", Permission.ENQUEUE, examples=ENQUEUE)
def enqueue(queue: QueueInPath, body: EnqueueBody) -> EnqueueResults:
    """Enqueue tasks.

    Each entry succeeds or fails on its own. The answer has one result for each entry, in the order
    of the entries. An entry whose `id` exists, in any queue, is EXISTING and changes nothing.
    """
    use = current_service()
    results = use.tasks.enqueue(queue, [entry.new_task() for entry in body.tasks])
    return enqueued_answer(results, now=use.now(), max_retries=use.queues.max_retries)
