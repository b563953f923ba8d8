"""What a worker does about queues and schedules before it takes tasks.

It makes what is missing, as far as its key may, and warns of what differs from the app; what is
there it changes only where it is to sync, because a worker of an older version may start at any
time.  A worker needs none of that to take tasks.
"""

import logging
from collections.abc import Iterable
from typing import Final

from headrace.client.app.app import App
from headrace.client.app.drift import SyncAction, SyncPlan, SyncStep
from headrace.client.app.syncing import AppSync, StepOutcome, StepResult, failure_of
from headrace.client.client import Client
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import Forbidden, NotFound, VersionMismatch

_ROUNDS: Final = 3  # of a sync while others change the same

_log = logging.getLogger("headrace.worker")


def prepare(client: Client, app: App, settings: WorkerSettings) -> None:
    """Sync *app*, or make what it misses and log a warning for each difference.

    Raises TypeError for an app that declares what cannot be, and headrace.domain.errors: when the
    service is away, when it refuses what it is to sync, and for a schedule that makes no sense.
    """
    declares = app.declares(settings.app_path)
    sync = AppSync(client, declares, everywhere=app.name is not None)
    if settings.sync:
        _sync(sync, prune=settings.prune)
        return
    try:
        app.ensure_queues(client)
        plan = sync.plan()
    except (Forbidden, NotFound) as error:
        _log.warning("Queues and schedules are left as they are: %s", error)
        return
    missing = [step for step in plan.steps if step.action is SyncAction.CREATE]
    results = list(sync.apply(missing))
    failure = failure_of(one for one in results if not isinstance(one.error, Forbidden))
    if failure is not None:
        raise failure
    done = [one.step for one in results if one.outcome is StepOutcome.DONE]
    _warn(plan, [step for step in plan.steps if step not in done], settings.app_path)


def _sync(sync: AppSync, *, prune: bool) -> None:
    results: list[StepResult] = []
    for _ in range(_ROUNDS):
        results = list(sync.apply(sync.plan(prune=prune).steps))
        for one in results:
            if one.outcome is StepOutcome.DONE:
                _log.info("Synced: %s %s", one.step.action, described(one.step))
        if not any(isinstance(one.error, VersionMismatch) for one in results):
            break
    error = failure_of(results)
    if error is not None:
        raise error


def _warn(plan: SyncPlan, steps: Iterable[SyncStep], path: str | None) -> None:
    lines = [
        f"{step.subject} is missing" if step.action is SyncAction.CREATE else described(step)
        for step in steps
    ]
    for queue, name in plan.undeclared:
        lines.append(f"schedule {name} of {queue} is declared no more")
    for line in lines:
        _log.warning("Drift: %s", line)
    if lines:
        prune = " --prune" if plan.undeclared else ""
        _log.warning("To mend that: headrace sync %s%s", path or "MODULE:APP", prune)


def described(step: SyncStep) -> str:
    """*step* in a line, without payloads: logs go where these may not."""
    if step.action is SyncAction.CONFLICT:
        return f"{step.subject} is of the app {step.fields[0].old}"
    if step.action is not SyncAction.CHANGE:
        return step.subject
    parts = [
        f"{one.field} differs"
        if one.field == "payload"
        else f"{one.field} is {_value(one.old)}, declared is {_value(one.new)}"
        for one in step.fields
    ]
    return f"{step.subject}: {'; '.join(parts)}"


def _value(value: object) -> str:
    return "nothing" if value is None else str(value)
