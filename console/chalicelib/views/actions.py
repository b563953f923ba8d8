"""Operators' actions on tasks, and the question and the form for one task.

The lifecycle table says from which states each is legal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.errors import HeadraceError, InvalidRequest, NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.lifecycle import Action, Actor, rules
from headrace.domain.operate import SAID, BulkAction
from headrace.domain.task import State, Status, Task

from .. import formatting, urls
from ..pages import Flash
from ..parts import Field, Hidden, Link
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .confirm import ask
from .navigation import crumbs, queue_options
from .queue_actions import UNDO_SECONDS, undo_words, why_field

_ANY_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)  # spans of states need some time


@dataclass(frozen=True, slots=True)
class TaskAction:
    """One action: its verb, its past participle, and what to know before confirming it.

    ``permission`` is what it takes in the task's queue, ``otherwise`` the way back in words.
    """

    action: BulkAction
    verb: str
    done: str
    detail: str
    danger: bool = False
    permission: Permission = Permission.OPERATE
    otherwise: str = "Cancel"

    @property
    def name(self) -> str:
        """The name in addresses and forms."""
        return self.action.value

    def takes(self, word: str) -> bool:
        """Return whether it is legal for some tasks of the state *word*."""
        spans = TaskFilter(states=(word,) if word else ()).spans(_ANY_TIME)
        if self.action is BulkAction.RUN and word == "READY":
            return False
        return any(self._from(span.state) for span in spans)

    def fits(self, task: Task, status: Status) -> bool:
        """Return whether it is legal for *task* now."""
        if self.action is BulkAction.RUN:
            return status is Status.SCHEDULED
        return self._from(task.state)

    def _from(self, state: State) -> bool:
        return bool(rules(Action(self.action.value), state, actor=Actor.OPERATOR))


ACTIONS: Final[Mapping[str, TaskAction]] = {
    each.name: each
    for each in (
        TaskAction(BulkAction.RUN, "Run now", "due now",
                   "Due now; attempts and expiry stay."),
        TaskAction(BulkAction.RESTART, "Restart", "restarted",
                   "Attempts reset to 0; error history kept."),
        TaskAction(BulkAction.MOVE, "Move", "moved",
                   "The settings of the other queue apply. A ready or scheduled task keeps its due "
                   "time, a dead one is due now."),
        TaskAction(BulkAction.CANCEL, "Cancel", "cancelled",
                   "Dead as cancelled, without an error. A worker running it gets the cancel with "
                   "its next heartbeat, after a third of the lease at the latest, and stops.",
                   danger=True, permission=Permission.CANCEL, otherwise="Keep it"),
        TaskAction(BulkAction.DELETE, "Delete", "deleted",
                   "A worker running a deleted task is not stopped; its result is discarded.",
                   danger=True),
    )
}  # fmt: skip


def detail_of(action: TaskAction) -> str:
    """Return the effect of *action*, and how long an undo is possible."""
    undoable = action.action is BulkAction.DELETE
    return f"{action.detail} {undo_words()}" if undoable else action.detail


def action_named(name: str) -> TaskAction:
    """Return an action by its name in an address.  Raises NotFound."""
    found = ACTIONS.get(name)
    if found is None:
        raise NotFound(f"there is no action {name[:40]}")
    return found


def target_fields(
    context: RequestContext, action: TaskAction, queue: str, error: str
) -> tuple[Field, ...]:
    """Return the field for where a move goes, with the visitor's queues; none for the others."""
    if action.action is not BulkAction.MOVE:
        return ()
    given = context.request.given("to_queue")
    options = queue_options(context, but=queue)
    field = Field(
        "to_queue", "To queue", given, required=True, options=options, error=error, width="l"
    )
    return (field,)


def _asked(
    context: RequestContext, action: TaskAction, queue: str, error: HeadraceError | None
) -> tuple[Field, ...]:
    """Return the fields of the question: the target of a move, and the reason."""
    wrong = {one.field: one.message for one in error.errors} if error else {}
    target = error.detail if error and "reason" not in wrong else ""
    return (
        *target_fields(context, action, queue, target),
        why_field(context.request.given("reason"), wrong.get("reason", "")),
    )


def outcome_text(action: TaskAction, changed: int, skipped: Sequence[str]) -> tuple[str, str]:
    """Return done or failed, and how many tasks were *changed* and why others were *skipped*."""
    done = f"{formatting.count_of(changed, 'task')} {action.done}"
    if not skipped:
        return "done", f"{done}."
    reasons = ", ".join(sorted(set(skipped)))
    text = f"{f'{done}, ' if changed else ''}{formatting.number(len(skipped))} skipped: {reasons}."
    return "failed", text[:500]


def why(result: str, detail: str | None) -> str:
    """Return why a task was skipped, in words."""
    if result == "NOT_FOUND" or detail == "NOT_FOUND":
        return "no longer in this queue"
    return SAID.get(detail or "", detail or "it has changed")


@routes.post(urls.TASK_ACTION, Permission.CANCEL)  # the action's own permission is checked too
def act_on_task(context: RequestContext) -> Reply:
    """Do it, in the queue that the confirmation named."""
    action = action_named(context.request.names["action"])
    queue, task_id = context.request.given("queue"), context.request.names["id"]
    moves = action.action is BulkAction.MOVE
    target = context.request.given("to_queue").strip() if moves else ""
    context.require(action.permission, queue, *([target] if target else []))
    try:
        if moves and not target:
            raise InvalidRequest.of("to_queue", "is needed")
        answer = context.use.bulk.by_ids(
            queue,
            action.action,
            [task_id],
            to_queue=target or None,
            undo_in_seconds=UNDO_SECONDS if action.action is BulkAction.DELETE else 0,
            reason=context.request.given("reason"),
        )
    except (InvalidRequest, NotFound) as error:
        return ask_of_task(context, error)
    where = context.url(urls.TASK, {BACK: context.back}, id=task_id)
    if not answer.changed:
        skipped = [why(one.outcome, one.detail) for one in answer.results]
        return Redirect(where, Flash(*outcome_text(action, 0, skipped)))
    if action.action is BulkAction.DELETE:
        where = context.back or context.url(urls.QUEUE, queue=queue)
    undo = answer.undo.id if answer.undo else ""
    return Redirect(where, Flash("done", f"Task {task_id} is {action.done}.", undo))


@routes.get(urls.TASK_ACTION, Permission.CANCEL)
def ask_of_task(context: RequestContext, error: HeadraceError | None = None) -> Reply:
    """Say what an action would do to a task, and ask whether to do it."""
    action = action_named(context.request.names["action"])
    task = context.task()
    context.require(action.permission, task.queue)
    status = task.status(context.now)
    fits = action.fits(task, status)
    here = context.url(urls.TASK, {BACK: context.back}, id=task.id)
    return ask(
        crumbs(context, task.queue, task.id),
        title=f"{formatting.upon(action.verb, 'task')}?",
        question=f"{formatting.upon(action.verb, f'task {task.id} of {task.queue}')}?",
        detail=detail_of(action)
        if fits
        else f"That cannot be done to a task that is {status.lower()}.",
        action=context.url(urls.TASK_ACTION, id=task.id, action=action.name),
        button=formatting.upon(action.verb, "this task"),
        danger=action.danger,
        possible=fits,
        otherwise=action.otherwise,
        fields=_asked(context, action, task.queue, error) if fits else (),
        hidden=(Hidden("queue", task.queue),),
        back=Link("Back to the task", here),
        status=error.status if error else 200,
    )
