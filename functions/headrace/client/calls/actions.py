"""Calls about actions on many tasks that the service carries out."""

from collections.abc import Sequence
from typing import Unpack

from headrace.client.calls import ApiCall, PagedCall, gets, lists, params_of, path_of, posts, reads
from headrace.client.calls import without_none as given
from headrace.client.calls.many import ActionName, TaskFilters, filter_body
from headrace.domain import limits
from headrace.wire.actions import Actions, ActionSeen


def begin_action(
    action: ActionName,
    queues: Sequence[str],
    *,
    all: bool = False,
    to_queue: str | None = None,
    undo_in_seconds: float | None = None,
    reason: str | None = None,
    **filters: Unpack[TaskFilters],
) -> ApiCall[ActionSeen]:
    """Have the service act on the tasks of *queues* that the filters hold for, or on *all*.

    The action runs in the background; ``get_action`` says how far it is.
    *to_queue* is where a move goes; what is deleted ``undo`` can bring back within
    *undo_in_seconds*, by the answer's ``undos``.
    Raises NotFound for a queue, and InvalidRequest naming the field.
    """
    fields = given(to_queue=to_queue, undo_in_seconds=undo_in_seconds, reason=reason)
    body = {"action": action, "queues": list(queues), "filter": filter_body(filters, all=all)}
    return posts(path_of("actions"), reads(ActionSeen), body | fields)


def list_actions(*, queue: str | None = None, query: str | None = None) -> PagedCall[ActionSeen]:
    """Go through the actions of the last 30 days, the latest first; of *queue* only.

    *query* narrows that, in the language of the console's search boxes: ``status:running``.
    Raises InvalidRequest that says where it is wrong.
    """
    params = params_of(queue=queue, query=query, limit=limits.LIST_PAGE)
    return lists(path_of("actions"), Actions, lambda page: page.actions, params)


def get_action(id: str) -> ApiCall[ActionSeen]:
    """Return how far an action is.  Raises NotFound."""
    return gets(ActionSeen, "actions", id)


def pause_action(id: str) -> ApiCall[ActionSeen]:
    """Let an action rest.  Raises NotFound, and Finished for one that is over."""
    return posts(path_of("actions", id, "pause"), reads(ActionSeen))


def resume_action(id: str) -> ApiCall[ActionSeen]:
    """Let an action go on that rests.  Raises as ``pause_action``."""
    return posts(path_of("actions", id, "resume"), reads(ActionSeen))


def cancel_action(id: str) -> ApiCall[ActionSeen]:
    """End an action where it is; what is done stays done.  Raises as ``pause_action``."""
    return posts(path_of("actions", id, "cancel"), reads(ActionSeen))
