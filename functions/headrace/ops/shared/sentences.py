"""What the audit knows of an action, as a sentence that a colleague would say."""

from collections.abc import Mapping
from typing import Any, Final

from headrace.ops.shared.audit import AuditRecord

_DONE: Final = {
    "restart": "restarted",
    "run": "made due",
    "move": "moved",
    "cancel": "cancelled",
    "delete": "deleted",
    "purge": "purged",
    "undo": "restored",
}
_OTHERS: Final = {
    "pause": "paused {}",
    "resume": "resumed {}",
    "snooze": "snoozed {} of {queue}",
    "wake": "ended the snooze of {} of {queue}",
    "update_queue": "changed the settings of {}",
    "create_queue": "created queue {}",
    "delete_queue": "deleted queue {}",
    "enqueue_as_new": "enqueued a copy of a task in {}",
    "reindex": "rebuilt the index of {}",
    "recount": "recounted {}",
    "rotate_signing_secret": "rotated the signing secret of {}",
    "put_schedule": "saved schedule {} of {queue}",
    "run_schedule": "ran schedule {} of {queue} now",
    "delete_schedule": "deleted schedule {} of {queue}",
    "create_key": "created key {}",
    "rotate_key": "rotated key {}",
    "revoke_key": "revoked key {}",
    "quiet_worker": "asked worker {} to take no new tasks",
    "stop_worker": "asked worker {} to stop",
    "resume_action": "resumed action {}",
    "refuse": "was refused {}",
    "refuse_sign_in": "was refused at sign-in",
    "sign_in": "signed in",
    "sign_out": "signed out",
}
_NAMES: Final = (
    "incident",
    "schedule",
    "name",
    "batch",
    "action",
    "request",
)  # of a filter, that name a thing
_LEFT: Final = {
    "the task has changed": "had changed",
    "NOT_FOUND": "no longer existed",
    "dedupe_conflict": "had a dedupe key that another task holds",
    "inflight": "were in flight",
}
_REASONS: Final = 3  # for skipped tasks, that are listed one by one
_NOTHING: Final = "none"


def sentence(entry: AuditRecord) -> str:
    """Return actor, action, numbers and reason in words."""
    if entry.action not in _DONE:
        return _because(f"{entry.actor} {_other(entry)}", entry)
    done, place = _DONE[entry.action], _place(entry)
    if entry.changed is None:
        return _because(f"{entry.actor} {_begins(entry.action)} tasks of {place}", entry)
    parts = [f"{entry.actor} {done} {_tasks(entry, entry.changed)} of {place}"]
    left = sorted((entry.left or {}).items(), key=lambda one: (-one[1], one[0]))
    for reason, number in left[:_REASONS]:
        parts.append(_of(number, _LEFT.get(reason, f"were skipped ({reason})")))
    if more := sum(number for _, number in left[_REASONS:]):
        parts.append(_of(more, "were skipped"))
    if entry.stopped is not None:
        how = "cancelled" if entry.stopped == "cancelled" else f"failed ({entry.stopped})"
        parts.append(f"{how} {_not_touched(entry, entry.changed)}")
    return _because(", ".join(parts), entry)


def _other(entry: AuditRecord) -> str:
    """Return what was done to the queue, schedule, key, worker or batch of *entry*."""
    where = entry.filter or {}
    named = next((str(where[name]) for name in _NAMES if where.get(name)), "")
    ids = ", ".join(entry.ids or ())
    thing = ids if entry.action.endswith("_worker") else named or entry.queue or ids
    words = _OTHERS.get(entry.action, f"{entry.action.replace('_', ' ')} {{}}")
    return words.format(thing, queue=entry.queue).rstrip()


def changes(entry: AuditRecord) -> tuple[str, ...]:
    """Return which settings were changed, each with what it was and is."""
    before, after = _flat(entry.before or {}), _flat(entry.after or {})
    return tuple(
        f"{name} {_shown(before.get(name))} → {_shown(after.get(name))}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )


def _not_touched(entry: AuditRecord, changed: int) -> str:
    if entry.matched is None:
        return "before its tasks were counted"
    rest = entry.matched - changed - sum((entry.left or {}).values())
    return f"with {rest:,} not touched"


def _of(number: int, were: str) -> str:
    """Return *number* with what they *were*, which one was."""
    return f"{number:,} {f'was {were[5:]}' if number == 1 and were.startswith('were ') else were}"


def _because(said: str, entry: AuditRecord) -> str:
    return f"{said}: {entry.reason}" if entry.reason else said


def _begins(action: str) -> str:
    return {"run": "is running"}.get(
        action, f"is {action[:-1] if action[-1] == 'e' else action}ing"
    )


def _place(entry: AuditRecord) -> str:
    where = entry.filter or {}
    names = str(where.get("queues", "")).split(",")
    place = entry.queue or (f"{len(names)} queues" if len(names) > 1 else "several queues")
    if where.get("batch"):
        place = f"batch {where['batch']}"
    return f"{place} to {where['to_queue']}" if where.get("to_queue") else place


def _tasks(entry: AuditRecord, number: int) -> str:
    state = str((entry.filter or {}).get("state", "")).lower()
    kind = f"{state} " if state.isalpha() else ""
    return f"{number:,} {kind}{'task' if number == 1 else 'tasks'}"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or _NOTHING
    return _NOTHING if value in (None, "", {}) else str(value)
