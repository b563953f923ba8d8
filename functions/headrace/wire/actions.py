"""Answers about actions on many tasks that the service carries out."""

from typing import Annotated, Any

from msgspec import Meta

from headrace.wire.base import Answer, At, Cursor, words_of


class ActionSeen(Answer, frozen=True, kw_only=True):
    """An action on many tasks, and its progress.

    Shows ``headrace.store.records.actions.Action``.
    """

    id: str
    action: Annotated[str, words_of("BulkAction")]
    queues: Annotated[list[str], Meta(description="Where its tasks are.")]
    filter: Annotated[
        dict[str, Any], Meta(description="Which tasks were meant, as they were when it was begun.")
    ]
    to_queue: Annotated[str | None, Meta(description="Where a move goes.")]
    status: Annotated[
        str,
        words_of("ActionStatus"),
    ]
    matched: Annotated[
        int | None, Meta(description="How many tasks it is about; null: it looks for them.")
    ]
    done: Annotated[int, Meta(description="How many of them are dealt with.")]
    changed: Annotated[int, Meta(description="How many of those were changed.")]
    left: Annotated[
        dict[str, int],
        Meta(
            description="Why the others of those were left alone, with how many, as in `detail` "
            "and `outcome` of bulk results."
        ),
    ]
    undos: Annotated[
        dict[str, str],
        Meta(description="Of each queue what brings the deleted back: `POST /v1/undos/{id}`."),
    ]
    reason: Annotated[str, Meta(description="In the actor's words; empty if not said.")]
    actor: Annotated[str, Meta(description="The name of the key that began it.")]
    actor_id: str | None
    started_at: At
    ended_at: Annotated[At | None, Meta(description="null: it is not over.")]
    trouble: Annotated[
        str, Meta(description="Why it is FAILED, or PAUSED by the service; else empty.")
    ]


class Actions(Answer, frozen=True, kw_only=True):
    """A page of actions, newest first; it may be short and still have a cursor."""

    actions: list[ActionSeen]
    cursor: Cursor
