"""Schedules: create or replace, list, show, delete, run now."""

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.schedule import MOST_MISSED, Missed, ScheduleSettings
from headrace.domain.task import OnExpiry
from headrace.domain.task_fields import SetBy
from headrace.domain.values import convert
from headrace.http.enqueue import TaskOptionsBody, enqueued_answer
from headrace.http.fields import (
    PLAIN,
    Examples,
    Ignored,
    Name,
    contradiction,
    example,
    with_texts_of,
    within,
    zero_or,
)
from headrace.http.parameters import Cursor, Limit, QueueInPath
from headrace.http.queue_bodies import EmptyBody
from headrace.http.rawjson import Payload
from headrace.http.request import principal
from headrace.http.routing import Routes
from headrace.runtime.wiring import current_service
from headrace.wire import queues as queue_wire
from headrace.wire.base import LEFT_OUT, instant, raw
from headrace.wire.tasks import EnqueueResults

if TYPE_CHECKING:
    from headrace.ops.scheduling.schedules import Seen

routes: Final = Routes("Schedules")

NameInPath: TypeAlias = Annotated[str, Field(description="The name of the schedule.")]

_DEFAULT: Final = ScheduleSettings()

# The parser of cron expressions refuses an empty text, with a better message.
CronText: TypeAlias = Annotated[str, Field(max_length=limits.CRON)]
EverySeconds: TypeAlias = Annotated[
    float, Field(ge=limits.EVERY_SECONDS[0], le=limits.EVERY_SECONDS[1], allow_inf_nan=False), PLAIN
]

_Expiry: TypeAlias = Annotated[
    float,
    within((0, limits.EXPIRES_SECONDS[1]), "0: never."),
    PLAIN,
    AfterValidator(zero_or(limits.EXPIRES_SECONDS[0], "never")),
]
MissedTicks: TypeAlias = Annotated[Missed, Field(strict=False)]
WhenExpired: TypeAlias = Annotated[OnExpiry, Field(strict=False)]


@with_texts_of(SetBy.SCHEDULE)
class ScheduleBody(TaskOptionsBody):
    """A schedule, in the form of the answer to GET."""

    name: Name | None = Field(default=None, description="If given, the same as in the path.")
    cron: CronText | None = Field(
        default=None,
        description="Minute, hour, day of month, month and weekday; with seconds before them, and "
        "with the year behind them too. Knows `L`, `W`, `#`, names, lists, ranges and steps.",
        examples=["*/5 * * * *", "0 9 LW * *", "0 30 8 ? * MON-FRI 2027"],
    )
    every_seconds: EverySeconds | None = Field(
        default=None, description="Instead of cron. Counts from the time when it was set."
    )
    timezone: Annotated[str, Field(max_length=limits.TIMEZONE)] = Field(
        default=_DEFAULT.timezone, description="The IANA time zone of cron."
    )
    payload: Payload | None = Field(default=None, description="Left out, it is `{}`.")
    expires_in_seconds: _Expiry | None = Field(
        default=None,
        description="For each task, from its due time; null: the setting of the queue.",
    )
    missed: MissedTicks = Field(
        default=_DEFAULT.missed,
        description="Which ticks of the last 24 hours are enqueued late if no scheduler ran: none "
        f"(`skip`), the newest (`latest`), or up to {MOST_MISSED} (`all`).",
    )
    on_expiry: WhenExpired = Field(
        default=_DEFAULT.on_expiry,
        description="What happens to a tick that expires before its first delivery: it becomes a "
        "dead letter (`dead`), or is removed and counts as deleted (`drop`). Not for `…/run`.",
    )
    paused: bool = Field(
        default=_DEFAULT.paused, description="No ticks, and no late ticks after the pause."
    )
    next_run_at: Ignored = None
    last_run_at: Ignored = None
    created_at: Ignored = None
    updated_at: Ignored = None

    @model_validator(mode="after")
    def _has_one_interval(self) -> "ScheduleBody":
        if (self.cron is None) == (self.every_seconds is None):
            raise contradiction(
                "give exactly one of cron and every_seconds", "cron", "every_seconds"
            )
        return self

    def settings_of(self, name: str) -> ScheduleSettings:
        """Return the settings. Raises InvalidRequest if they name another schedule."""
        if self.name is not None and self.name != name:
            raise InvalidRequest.of("name", f"must be the name in the path, {name[:128]}")
        return convert(self.model_dump(exclude_none=True), ScheduleSettings)


PUT_SCHEDULE: Final[Examples] = {
    "cron": example(
        "Every five minutes on weekdays, in the time of Madrid",
        {
            "cron": "*/5 8-18 * * MON-FRI",
            "timezone": "Europe/Madrid",
            "payload": {"report": "air-quality"},
            "tags": {"service": "smartcity"},
            "expires_in_seconds": 300,
        },
    ),
    "last_weekday": example("On the last weekday of each month", {"cron": "0 18 LW * *"}),
    "every": example("Every 90 seconds, but paused", {"every_seconds": 90, "paused": True}),
}


# ------------------------------------------------------------------------------------------ answers


def schedule_answer(seen: "Seen", *, payload: bool) -> queue_wire.Schedule:
    """Return the answer about a schedule, with its payload if *payload*."""
    settings = seen.schedule.settings
    return queue_wire.Schedule.of(
        settings,
        name=seen.schedule.name,
        next_run_at=instant(seen.next_run_at),
        last_run_at=instant(seen.last_run_at),
        created_at=instant(seen.schedule.created_at),
        updated_at=instant(seen.schedule.updated_at),
        payload_json=raw(settings.payload) if payload else LEFT_OUT,
    )


def schedule_in_short(seen: "Seen") -> queue_wire.ScheduleInShort:
    """Return the short form of a schedule, for the answer about its queue."""
    schedule, next_run_at = seen.schedule, instant(seen.next_run_at)
    return queue_wire.ScheduleInShort.of(
        schedule.settings, name=schedule.name, next_run_at=next_run_at
    )


# ------------------------------------------------------------------------------------------- routes


@routes.add("PUT", "/v1/queues/{queue}/schedules/{name}", Permission.OPERATE, examples=PUT_SCHEDULE)
def put_schedule(queue: QueueInPath, name: NameInPath, body: ScheduleBody) -> queue_wire.Schedule:
    """Create or replace a schedule.

    A setting that is missing gets its default. The answer of GET can be sent back. Tasks are
    enqueued up to three minutes ahead. A change removes tasks of the previous settings that are not
    due yet, and no tick runs twice.
    """
    seen = current_service().schedules.put(queue, name, body.settings_of(name))
    return schedule_answer(seen, payload=True)


@routes.add("GET", "/v1/queues/{queue}/schedules", Permission.READ)
def list_schedules(
    queue: QueueInPath, limit: Limit = 50, cursor: Cursor = None
) -> queue_wire.ScheduleList:
    """List the schedules of a queue.

    By name, in the same form as one schedule. A page may be short.
    """
    use = current_service()
    found = use.schedules.page(use.queues.get(queue), limit=limit, cursor=cursor)
    payload = principal().may(Permission.DETAILS)
    shown = [schedule_answer(seen, payload=payload) for seen in found.shown]
    return queue_wire.ScheduleList(schedules=shown, cursor=found.cursor)


@routes.add("GET", "/v1/queues/{queue}/schedules/{name}", Permission.READ)
def get_schedule(queue: QueueInPath, name: NameInPath) -> queue_wire.Schedule:
    """Show a schedule."""
    seen = current_service().schedules.get(queue, name)
    return schedule_answer(seen, payload=principal().may(Permission.DETAILS))


@routes.add("DELETE", "/v1/queues/{queue}/schedules/{name}", Permission.OPERATE, status=204)
def delete_schedule(queue: QueueInPath, name: NameInPath) -> None:
    """Delete a schedule and its tasks that are not due yet."""
    current_service().schedules.delete(queue, name)


@routes.add("POST", "/v1/queues/{queue}/schedules/{name}/run", Permission.OPERATE)
def run_schedule(queue: QueueInPath, name: NameInPath, _body: EmptyBody = None) -> EnqueueResults:
    """Enqueue a task of a schedule now.

    Also works for a paused schedule. The answer has one result, as for an enqueue.
    """
    use = current_service()
    result = use.schedules.run(queue, name)
    return enqueued_answer([result], now=use.now(), max_retries=use.queues.max_retries)
