"""Checks of a queue's settings, made before they are stored."""

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.domain.errors import FieldError, Forbidden, InvalidRequest, NotFound
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task_groups import OnDead
from headrace.store.call_scope import visible

if TYPE_CHECKING:
    from headrace.ops.shared.queues import QueueOperations


def checked_settings(
    queues: "QueueOperations", name: str, settings: QueueSettings, before: Queue | None
) -> QueueSettings:
    """Return *settings* with the fields that they take over from *before*; write nothing.

    Raises InvalidRequest for a target that is not allowed, for a queue to notify that does not
    exist, for a strict order that was not strict or the reverse, and for a halting order in a queue
    that keeps no dead tasks.
    """
    _check_order(settings, None if before is None else before.settings)
    return _with_notified(queues, name, _with_target(queues, settings, before), before)


def _with_target(
    queues: "QueueOperations", settings: QueueSettings, before: Queue | None
) -> QueueSettings:
    """Return *settings* with the values that their target masks; *before* is the stored queue."""
    if settings.target is None:
        return settings
    target = settings.target.unmask_headers(None if before is None else before.settings.target)
    if before is None or target != before.settings.target:  # else it was allowed before
        queues.service.settings.push.check(target)
    return replace(settings, target=target)


def _with_notified(
    queues: "QueueOperations", name: str, settings: QueueSettings, before: Queue | None
) -> QueueSettings:
    """Return *settings* with the queues that they notify; *before* is the stored queue.

    Raises InvalidRequest for a queue that does not exist, unless it was set before, and Forbidden
    if the caller may not see the queue and would have more sent to it.
    """
    was = QueueSettings() if before is None else before.settings
    if (on_end := settings.on_end) is not None:
        known = None if was.on_end is None else was.on_end.queue
        notified = _notified(queues, name, "on_end.queue", on_end.queue, known)
        if not (visible(notified) or on_end.notifies_no_more_than(was.on_end)):
            raise _sends_more("on_end.states", "add a state")
        settings = replace(settings, on_end=replace(on_end, queue=notified))
    if (alerts := settings.alerts) is not None:
        known = None if was.alerts is None else was.alerts.queue
        notified = _notified(queues, name, "alerts.queue", alerts.queue, known)
        if not (visible(notified) or alerts.notifies_no_more_than(was.alerts)):
            raise _sends_more("alerts", "add or lower a limit")
        settings = replace(settings, alerts=replace(alerts, queue=notified))
    return settings


def _notified(
    queues: "QueueOperations", name: str, field: str, wanted: str | None, known: str | None
) -> str:
    """Return the queue that *name* notifies by *field*: *wanted*, or else *known*."""
    wanted = known if wanted is None else wanted
    if wanted is None:
        raise InvalidRequest.of(field, "must be named")
    if wanted == name:
        raise InvalidRequest.of(field, "must be another queue")
    if wanted == known:
        return wanted
    try:
        found = queues.get(wanted) if visible(wanted) else None
    except NotFound:
        found = None
    if found is None:
        raise InvalidRequest.of(field, f"is missing: there is no queue {wanted}")
    if found.strict:
        raise InvalidRequest.of(field, "must not be strict: notifications have no order")
    return wanted


def _check_order(settings: QueueSettings, before: QueueSettings | None) -> None:
    """Raise InvalidRequest for groups that are not allowed; *before* are the stored settings."""
    groups = settings.groups
    strict = groups is not None and groups.strict
    was = before is not None and before.groups is not None and before.groups.strict
    if before is not None and strict != was:
        raise InvalidRequest.of("groups.mode", "is strict from the creation of a queue on, or not")
    halts = groups is not None and groups.on_dead is OnDead.HALT
    if halts and not settings.dead_letter_queue_config.enable:
        raise InvalidRequest.of("groups.on_dead", "must be continue: the queue keeps no dead")


def _sends_more(field: str, change: str) -> Forbidden:
    """Return the error for a change that sends more tasks to a queue that the caller cannot see."""
    message = f"this key has no access to the queue that is notified, so it may not {change}"
    return Forbidden(message, errors=[FieldError(field, message)])
