"""Operators' actions on one task, and on tasks ticked in a list.

The lifecycle table says from which states each is legal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import HeadraceError, InvalidRequest, NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.lifecycle import Action, Actor, rules
from headrace.domain.operate import SAID, BulkAction
from headrace.domain.task import State, Status, Task
from headrace.ops.operators.bulk import BulkAnswer, BulkOutcome

from .. import formatting, urls
from ..pages import Flash
from ..parts import Field, Hidden, Link
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .confirm import ConfirmPage, Question, Sample, ask
from .navigation import crumbs, queue_options
from .queue_actions import UNDO_SECONDS, undo_words, why_field

_SAMPLES: Final = 5
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
        """Tell whether it is legal for some task in the list that *word* of the filter selects."""
        spans = TaskFilter(states=(word,) if word else ()).spans(_ANY_TIME)
        if self.action is BulkAction.RUN and word == "READY":
            return False
        return any(self._from(span.state) for span in spans)

    def fits(self, task: Task, status: Status) -> bool:
        """Tell whether it is legal for *task* now."""
        if self.action is BulkAction.RUN:
            return status is Status.SCHEDULED
        return self._from(task.state)

    def _from(self, state: State) -> bool:
        return bool(rules(Action(self.action.value), state, actor=Actor.OPERATOR))


ACTIONS: Final[Mapping[str, TaskAction]] = {
    each.name: each
    for each in (
        TaskAction(BulkAction.RUN, "Run now", "due now",
                   "Due at once; attempts and expiry stay."),
        TaskAction(BulkAction.RESTART, "Restart", "restarted",
                   "A new beginning with no attempts used; the errors are kept."),
        TaskAction(BulkAction.MOVE, "Move", "moved",
                   "The other queue's settings hold from then on. A waiting task keeps its due "
                   "time, a dead one is due now."),
        TaskAction(BulkAction.CANCEL, "Cancel", "cancelled",
                   "Dead at once, as cancelled, and no failure. A worker that is at it hears of it "
                   "with its next heartbeat, after a third of the keepalive at the latest, and "
                   "stops.", danger=True, permission=Permission.CANCEL, otherwise="Keep it"),
        TaskAction(BulkAction.DELETE, "Delete", "deleted",
                   "Gone. A worker that is at it is not stopped, but its report will find "
                   "nothing.", danger=True),
    )
}  # fmt: skip


def detail_of(action: TaskAction, what: str = "them") -> str:
    """Return what to know before *action* is done to tasks that are named."""
    undoable = action.action is BulkAction.DELETE
    return f"{action.detail} {undo_words(what)}" if undoable else action.detail


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
    """Return what is asked before *action*: where to, if it moves, and why."""
    wrong = {one.field: one.message for one in error.errors} if error else {}
    target = error.detail if error and "reason" not in wrong else ""
    return (
        *target_fields(context, action, queue, target),
        why_field(context.request.given("reason"), wrong.get("reason", "")),
    )


def carry_out(
    context: RequestContext,
    action: TaskAction,
    queue: str,
    ids: Sequence[str],
    *,
    dry_run: bool = False,
) -> BulkAnswer:
    """Do it, or see what it would do.

    Raises Forbidden for either queue, and InvalidRequest naming ``id``, ``to_queue`` or ``reason``.
    """
    target = context.request.given("to_queue").strip() or None
    moves = action.action is BulkAction.MOVE
    context.require(action.permission, queue, *([target] if moves and target else []))
    if not 1 <= len(ids) <= limits.BULK_IDS:
        raise InvalidRequest.of("id", f"must name 1 to {limits.BULK_IDS} tasks")
    if moves and target is None and not dry_run:
        raise InvalidRequest.of("to_queue", "is needed")
    if moves and dry_run:
        # The next page asks for the target, which does not decide what a move takes.
        return BulkAnswer(len(ids), 0)
    to_queue = target if moves else None
    return context.use.bulk.by_ids(
        queue,
        action.action,
        ids,
        to_queue=to_queue,
        dry_run=dry_run,
        undo_in_seconds=UNDO_SECONDS if action.action is BulkAction.DELETE else 0,
        reason="" if dry_run else context.request.given("reason"),
    )


def outcome(action: TaskAction, answer: BulkAnswer) -> Flash:
    """Return the outcome as a message, in numbers and reasons."""
    number = len(answer.results)
    left = [why(result.outcome, result.detail) for result in answer.results if not result.changed]
    undo = answer.undo.id if answer.undo and answer.changed else ""
    if not left:
        return Flash("done", f"{formatting.count_of(number, 'task')} {action.done}.", undo)
    reasons = ", ".join(sorted(set(left)))
    done = (
        f"{formatting.count_of(answer.changed, 'task')} {action.done}, " if answer.changed else ""
    )
    return Flash("failed", f"{done}{formatting.number(len(left))} skipped: {reasons}."[:500], undo)


def why(result: str, detail: str | None) -> str:
    """Return why a task was left alone, in words."""
    if result == "NOT_FOUND":
        return "it is no longer in this queue"
    return SAID.get(detail or "", detail or "it has changed")


@routes.post(urls.TASK_ACTION, Permission.CANCEL)  # what the action itself takes is checked too
def act_on_task(context: RequestContext) -> Reply:
    """Do it, in the queue that the confirmation named."""
    action = action_named(context.request.names["action"])
    queue, task_id = context.request.given("queue"), context.request.names["id"]
    try:
        answer = carry_out(context, action, queue, [task_id])
    except (InvalidRequest, NotFound) as error:
        return ask_of_task(context, error)
    gone = action.action is BulkAction.DELETE and answer.changed
    where = context.url(urls.TASK, {BACK: context.back}, id=task_id)
    if gone:
        where = context.back or context.url(urls.QUEUE, queue=queue)
    if answer.changed:
        undo = answer.undo.id if answer.undo else ""
        return Redirect(where, Flash("done", f"Task {task_id} is {action.done}.", undo))
    return Redirect(where, outcome(action, answer))


@routes.get(urls.TASK_ACTION, Permission.CANCEL)
def ask_of_task(context: RequestContext, error: HeadraceError | None = None) -> ConfirmPage:
    """Say what an action would do to a task, and ask whether to do it."""
    action = action_named(context.request.names["action"])
    task = context.task()
    context.require(action.permission, task.queue)
    status = task.status(context.now)
    fits = action.fits(task, status)
    question = Question(
        title=f"{formatting.upon(action.verb, 'task')}?",
        question=f"{formatting.upon(action.verb, f'task {task.id} of {task.queue}')}?",
        detail=detail_of(action, "it")
        if fits
        else f"That cannot be done to a task that is {status.lower()}.",
        action=context.url(urls.TASK_ACTION, id=task.id, action=action.name),
        button=formatting.upon(action.verb, "this task"),
        danger=action.danger,
        possible=fits,
        otherwise=action.otherwise,
        fields=_asked(context, action, task.queue, error) if fits else (),
        hidden=(Hidden("queue", task.queue),),
    )
    here = context.url(urls.TASK, {BACK: context.back}, id=task.id)
    back = Link("Back to the task", here)
    way = crumbs(context, task.queue, task.id)
    return ask(question, way, back=back, status=error.status if error else 200)


@routes.post(urls.SELECTED, Permission.CANCEL)
def act_on_ticked(context: RequestContext) -> Reply:
    """Ask for confirmation, or with it act on the ticked tasks."""
    action = action_named(context.request.given("action"))
    ids = tuple(dict.fromkeys(context.request.form.get("id", ())))
    back = context.back or context.url(urls.QUEUE, queue=context.queue)
    if not ids:
        return Redirect(back, Flash("failed", "No task was ticked, so nothing was done."))
    if not context.request.given("confirmed"):
        return _ask_of_ticked(context, action, ids, back)
    try:
        answer = carry_out(context, action, context.queue, ids)
    except (InvalidRequest, NotFound) as error:
        return _ask_of_ticked(context, action, ids, back, error)
    return Redirect(back, outcome(action, answer))


def _ask_of_ticked(
    context: RequestContext,
    action: TaskAction,
    ids: tuple[str, ...],
    back: str,
    error: HeadraceError | None = None,
) -> ConfirmPage:
    foreseen = carry_out(context, action, context.queue, ids, dry_run=True)
    results = foreseen.results or tuple(BulkOutcome(task_id, "") for task_id in ids)
    amount = formatting.count_of(foreseen.matched, "task")
    left = len(results) - _SAMPLES
    question = Question(
        title=f"{formatting.upon(action.verb, amount)}?",
        question=f"{formatting.upon(action.verb, f'{amount} of {context.queue}')}?",
        detail=detail_of(action),
        action=context.url(urls.SELECTED, queue=context.queue),
        button=formatting.upon(action.verb, amount),
        danger=action.danger,
        possible=bool(foreseen.matched),
        otherwise=action.otherwise,
        fields=_asked(context, action, context.queue, error),
        hidden=(
            Hidden("action", action.name),
            Hidden("confirmed", "yes"),
            Hidden(BACK, back),
            *(Hidden("id", task_id) for task_id in ids),
        ),
        samples=tuple(
            Sample(
                result.id,
                context.url(urls.TASK, id=result.id),
                "" if result.matched or not result.outcome else why(result.outcome, result.detail),
            )
            for result in results[:_SAMPLES]
        ),
        more=f"and {formatting.number(left)} more" if left > 0 else "",
    )
    to_list = Link("Back to the list", back)
    status = error.status if error else 200
    return ask(question, crumbs(context, context.queue), back=to_list, status=status)
