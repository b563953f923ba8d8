"""What every outbox offers to those who write: task functions, or tasks for a queue by its name.

The transaction is the outbox's first argument where the database library hands one around, and
nothing where the library knows it by itself.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ParamSpec, Protocol

from headrace.client.app.posting import PreparedTask
from headrace.client.codec import Codec
from headrace.client.sending import NewTask

P = ParamSpec("P")


class Preparing(Protocol[P]):
    """A task function, or one with options chosen: ``send_mail.options(delay=60)``."""

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedTask:
        """Return the task of a call with these arguments.  Raises InvalidRequest."""
        ...


def prepared_calls(
    task: Preparing[...], calls: Iterable[Mapping[str, Any]]
) -> Iterable[PreparedTask]:
    """Return the tasks of *calls*, each given as its arguments by name."""
    return (task.prepare(**call) for call in calls)


def prepared_tasks(queue: str, tasks: Iterable[NewTask], codec: Codec) -> Iterable[PreparedTask]:
    """Return *tasks* as those of *queue*, whose payloads *codec* writes."""
    return (PreparedTask(queue, task, codec) for task in tasks)
