"""Queues: create, list, show, replace, delete, pause, resume, purge, recount and reindex."""

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pydantic import Field

from headrace.domain.access import Permission
from headrace.domain.push import Target
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import AlertSettings, OnEnd
from headrace.history.tally import CANCELLED, by_state
from headrace.http.parameters import (
    Cursor,
    Limit,
    ListQueryText,
    QueueInPath,
    asked,
    keys_of,
)
from headrace.http.queue_bodies import (
    CREATE_QUEUE,
    FIRST_STEP,
    PAUSE,
    PURGE,
    REPLACE_QUEUE,
    CreateQueueBody,
    EmptyBody,
    PauseBody,
    PurgeBody,
    ReplaceQueueBody,
    StepBody,
)
from headrace.http.request import Reply, principal
from headrace.http.routing import Routes
from headrace.http.schedules import schedule_in_short
from headrace.http.stats import blocked_answer, stats_answer
from headrace.http.tasks import undoable_answer
from headrace.ops.search.list_queries import QUEUES
from headrace.ops.shared.paging import Found
from headrace.runtime.wiring import current_service
from headrace.wire import queues as queue_wire
from headrace.wire.base import LEFT_OUT, instant

if TYPE_CHECKING:
    from headrace.history.stats import QueueStats
    from headrace.ops.scheduling.schedules import Seen
    from headrace.ops.shared.stack_secret import SigningSecrets

KeyInPath: TypeAlias = Annotated[str, Field(description="The key of the group.")]

_SCHEDULES: Final = 100  # shown with a queue; the list of schedules has all

routes: Final = Routes("Queues")
_BACKGROUND: Final = "It continues in the background."


# ------------------------------------------------------------------------------------------ answers


def queue_answer(
    queue: Queue, stats: "QueueStats | None" = None, schedules: "Found[Seen] | None" = None
) -> queue_wire.Queue:
    """Return the answer about a queue, in full with *stats* and *schedules*."""
    return queue_wire.Queue.of(
        queue.settings,
        name=queue.name,
        target=_target_shown(queue.settings.target),
        on_end=_on_end_shown(queue.settings.on_end),
        alerts=_alerts_shown(queue.settings.alerts),
        created_at=instant(queue.created_at),
        updated_at=instant(queue.updated_at),
        version=queue.version,
        pause=_pause_shown(queue),
        stats=LEFT_OUT if stats is None else stats_answer(stats),
        schedules=LEFT_OUT
        if schedules is None
        else [schedule_in_short(seen) for seen in schedules.shown],
        schedules_cursor=LEFT_OUT if schedules is None else schedules.cursor,
    )


def _pause_shown(queue: Queue) -> queue_wire.PauseShown:
    """Return the pause of a queue, left out if there is none or the key may not read the audit."""
    if queue.pause is None or not principal().may(Permission.OPERATE):
        return LEFT_OUT  # type: ignore[no-any-return]
    return queue_wire.PauseShown.of(queue.pause, until=instant(queue.resume_at))


def _target_shown(target: Target | None) -> queue_wire.TargetShown | None:
    """Return the target, with its headers masked unless the key may set them."""
    if target is None:
        return None
    shown = target if principal().may(Permission.ADMINISTER) else target.mask_headers()
    return queue_wire.TargetShown.of(shown)


def _on_end_shown(on_end: OnEnd | None) -> queue_wire.OnEndShown | None:
    """Return the notifications on end. The queue is null if the key is not for it."""
    if on_end is None:
        return None
    queue = None if on_end.queue is None else principal().shown(on_end.queue)
    return queue_wire.OnEndShown(queue=queue, states=list(on_end.states))


def _alerts_shown(alerts: AlertSettings | None) -> queue_wire.AlertsShown | None:
    """Return the alerts. The queue is null if the key is not for it."""
    if alerts is None:
        return None
    queue = None if alerts.queue is None else principal().shown(alerts.queue)
    return queue_wire.AlertsShown.of(alerts, queue=queue)


def signing_answer(secrets: "SigningSecrets") -> queue_wire.SigningSecret:
    """Return the secrets that sign requests to targets."""
    return queue_wire.SigningSecret(
        secret=secrets.secret,
        previous=secrets.previous,
        previous_until=instant(secrets.previous_until),
    )


# ------------------------------------------------------------------------------------------- routes


@routes.add("POST", "/v1/queues", Permission.ADMINISTER, status=201, examples=CREATE_QUEUE)
def create_queue(body: CreateQueueBody) -> queue_wire.Queue:
    """Create a queue."""
    queue = current_service().queues.create(body.name, body.settings())
    return queue_answer(queue)


@routes.add("GET", "/v1/queues", Permission.READ, description=keys_of(QUEUES))
def list_queues(
    prefix: Annotated[str, Field(description="Only names with this prefix.", max_length=128)] = "",
    query: ListQueryText = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> queue_wire.Queues:
    """List queues by name.

    Shows the queues that the key is for.
    """
    where = asked(QUEUES, query)
    page = current_service().queues.list(prefix=prefix, where=where, limit=limit, cursor=cursor)
    shown = [queue_answer(one) for one in page.shown]
    return queue_wire.Queues(queues=shown, cursor=page.cursor)


@routes.add("GET", "/v1/queues/{queue}", Permission.READ, schema="QueueInFull")
def get_queue(queue: QueueInPath) -> queue_wire.Queue:
    """Show a queue."""
    use = current_service()
    found = use.queues.get(queue)
    schedules = use.schedules.page(found, limit=_SCHEDULES, short=True)
    return queue_answer(found, use.stats.of(found.name), schedules)


@routes.add("PUT", "/v1/queues/{queue}", Permission.ADMINISTER, examples=REPLACE_QUEUE)
def replace_queue(queue: QueueInPath, body: ReplaceQueueBody) -> queue_wire.Queue:
    """Replace a queue's settings.

    A setting that is missing gets its default. The answer of GET can be sent back.
    """
    settings = body.settings_of(queue)
    changed = current_service().queues.replace(queue, settings, version=body.version)
    return queue_answer(changed)


@routes.add(
    "DELETE", "/v1/queues/{queue}", Permission.ADMINISTER, status=204, also={202: _BACKGROUND}
)
def delete_queue(queue: QueueInPath) -> Reply:
    """Delete a queue with all its tasks."""
    finished = current_service().queues.delete(queue)
    return Reply(None, 204 if finished else 202)


@routes.add("POST", "/v1/queues/{queue}/pause", Permission.OPERATE, examples=PAUSE)
def pause_queue(queue: QueueInPath, body: PauseBody | None = None) -> queue_wire.Queue:
    """Pause deliveries.

    Leases still end and tasks still expire. The `reason` is shown with the queue while it is
    paused, and kept in the audit.
    """
    asked = body or PauseBody()
    changed = current_service().queues.pause(
        queue, resume_in_seconds=asked.resume_in_seconds, reason=asked.reason or ""
    )
    return queue_answer(changed)


@routes.add("POST", "/v1/queues/{queue}/resume", Permission.OPERATE)
def resume_queue(queue: QueueInPath, _body: EmptyBody = None) -> queue_wire.Queue:
    """Resume deliveries."""
    return queue_answer(current_service().queues.resume(queue))


@routes.add("GET", "/v1/queues/{queue}/signing-secret", Permission.ADMINISTER)
def get_signing_secret(queue: QueueInPath) -> queue_wire.SigningSecret:
    """Show the secret that signs requests to the target.

    Receivers verify requests with it, as the Standard Webhooks specification describes.
    """
    use = current_service()
    return signing_answer(use.signing.of(use.queues.get(queue)))


@routes.add("POST", "/v1/queues/{queue}/signing-secret/rotate", Permission.ADMINISTER)
def rotate_signing_secret(queue: QueueInPath, _body: EmptyBody = None) -> queue_wire.SigningSecret:
    """Replace the secret that signs requests to the target.

    For 24 hours the previous secret signs requests too, so that receivers can switch to the new
    one.
    """
    use = current_service()
    return signing_answer(use.signing.of(use.queues.rotate_signing(queue)))


@routes.add(
    "POST", "/v1/queues/{queue}/purge", Permission.OPERATE, also={202: _BACKGROUND}, examples=PURGE
)
def purge_queue(queue: QueueInPath, body: PurgeBody) -> queue_wire.Purged | Reply:
    """Remove all tasks in some states.

    Takes the tasks that came to the queue before the call (enqueued, moved there or restarted) and
    are in one of the states when the purge reaches them. Later tasks stay. With `undo_in_seconds`
    the `undo` of the answer can restore all of them until then, also tasks that are removed in the
    background. It costs one more write unit for each task.
    """
    purged = current_service().queues.purge(
        queue, body.chosen(), undo_in_seconds=body.undo_in_seconds
    )
    undo = LEFT_OUT if purged.undo is None else undoable_answer(purged.undo)
    answer = queue_wire.Purged(deleted=purged.deleted, undo=undo, in_background=LEFT_OUT)
    return Reply(answer, 200 if purged.finished else 202)


@routes.add("POST", "/v1/queues/{queue}/recount", Permission.OPERATE, examples=FIRST_STEP)
def recount_queue(queue: QueueInPath, body: StepBody | None = None) -> queue_wire.Recount:
    """Recount a queue and correct its counters.

    Use it after the recorder was down for more than six hours. Each call counts for some seconds.
    While the answer has a `cursor`, send it for the next step. When all tasks are counted, the
    counters are set, and further steps compare. If a task of the queue was written since the first
    step, `exact` is false: the counters may be off by such tasks. A cursor is valid for an hour.
    """
    cursor = body.cursor if body else None
    step = current_service().recounting.step(queue, cursor)
    return queue_wire.Recount(
        counts=by_state(step.counts),
        was=by_state(step.was),
        cancelled=step.counts[CANCELLED],
        was_cancelled=step.was[CANCELLED],
        exact=step.exact,
        cursor=step.cursor,
    )


@routes.add("POST", "/v1/queues/{queue}/reindex", Permission.OPERATE, status=202)
def reindex_queue(queue: QueueInPath, _body: EmptyBody = None) -> queue_wire.Queue:
    """Rebuild the index of a queue's values.

    Use it after the recorder was down for more than six hours, when lists by `indexed_fields` miss
    tasks. The rebuild runs in the background and takes a few minutes, and longer for millions of
    tasks. Until it has ended, lists read every task, as without an index. It costs two write units
    for each task and field. A repeat starts it again. 409: the queue has no `indexed_fields`.
    """
    return queue_answer(current_service().queues.reindex(queue))


@routes.add("GET", "/v1/queues/{queue}/groups/{key}", Permission.READ)
def get_group(queue: QueueInPath, key: KeyInPath) -> queue_wire.Group:
    """Show the state of a group of a queue.

    404 for a group without a task in this queue in the last month.
    """
    found = current_service().fair_groups.get(queue, key)
    return queue_wire.Group(
        group_key=found.group_key,
        weight=found.weight,
        turn=found.turn,
        waiting=found.waiting,
        inflight=found.inflight,
        limit=found.limit,
        blocked=blocked_answer(found.blocked),
        as_of=instant(found.as_of),
    )
