"""The shapes of answers about workers."""

from typing import Annotated

from pydantic import Field

from headrace.http.answers import Answer, At, Cursor
from headrace.ops.operators.workers import Command


class Commanded(Answer):
    """What a worker is asked to do."""

    command: Annotated[
        Command | None,
        Field(description="`quiet`: take no more tasks. `stop`: finish and end. null: go on."),
    ]


class Worker(Commanded):
    """A worker as it last gave a sign of life."""

    name: str
    queues: Annotated[list[str], Field(description="Those of its queues that are the key's.")]
    concurrency: int
    running: Annotated[
        list[str] | None,
        Field(description="Ids of tasks; null: it has queues that are not the key's."),
    ]
    version: str
    started_at: At
    seen_at: At


class Workers(Answer):
    """A page of workers, by name."""

    workers: list[Worker]
    cursor: Cursor


SHOWN: tuple[type[Answer], ...] = (Commanded, Worker, Workers)
"""What routes name in their documented answers."""
