"""More children than one report takes: they are made by tasks that are children themselves.

A report makes up to 24 tasks in its own transaction.  Of more, most travel in *loads*: tasks of the
parent's queue whose work is to make what they carry.  The loads are made with the report, all or
none, and each makes its tasks with its own report, once; one that carries many makes loads again.
So they come a moment later, and still exactly once, or not at all.

A load is a member of every batch that a task in it is named into, so that a batch waits for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

import msgspec

from headrace.client.app.context import Context
from headrace.client.app.execution import Timeouts
from headrace.client.app.failing import ErrorRules
from headrace.client.app.function import ARGS, TASK, RawHandler
from headrace.client.codec import Codec
from headrace.client.sending import SpawnedTask, later_child
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest, PayloadTooLarge
from headrace.domain.limits import RELAY_TASK, reserved_task
from headrace.domain.limits import SPAWN_TASK as LOAD
from headrace.domain.retry import RetryStrategy
from headrace.wire.tasks import LeasedTask

_ALONE: Final = 96 * limits.KIB  # what is larger is no part of a load; of 2 MiB 21 may be so large
_TASKS: Final = "tasks"


def in_loads(queue: str, children: Sequence[SpawnedTask], codec: Codec) -> list[SpawnedTask]:
    """Return the tasks that a report about a task of *queue* makes, so that all *children* come.

    Raises InvalidRequest where they are too many of a size, or of too many batches, and
    PayloadTooLarge where they take more than a report does.
    """
    if len(children) <= limits.SPAWN:
        return list(children)
    sized = [(len(codec.encode(entry_of(child))), child) for child in children]
    together = sum(size for size, _ in sized)
    if together > limits.SPAWNED_BYTES:
        message = (
            f"more than {limits.SPAWN} tasks take {together} bytes with their options; at most"
            f" {limits.SPAWNED_BYTES} are taken"
        )
        raise PayloadTooLarge.of("spawn", message)
    alone = [child for size, child in sized if size > _ALONE]
    rest = sorted((one for one in sized if one[0] <= _ALONE), key=_size, reverse=True)
    wanted = max(-(-len(rest) // limits.SPAWN), -(-sum(size for size, _ in rest) // _ALONE))
    loads: list[list[SpawnedTask]] = [[] for _ in range(min(limits.SPAWN - len(alone), wanted))]
    filled = [0] * len(loads)
    for size, child in rest:  # the largest first, each where there is most room
        least = filled.index(min(filled))
        loads[least].append(child)
        filled[least] += size
    return [*alone, *(_load(queue, load) for load in loads)]


def _size(sized: tuple[int, SpawnedTask]) -> int:
    return sized[0]


def _load(queue: str, children: Sequence[SpawnedTask]) -> SpawnedTask:
    batches = dict.fromkeys(batch for child in children for batch in child.batches or ())
    if len(batches) > limits.TASK_BATCHES:
        message = (
            f"takes more than {limits.SPAWN} tasks only if they are named into at most"
            f" {limits.TASK_BATCHES} batches together"
        )
        raise InvalidRequest.of("spawn", message)
    payload = {TASK: LOAD, ARGS: {_TASKS: [entry_of(child) for child in children]}}
    return SpawnedTask(queue=queue, payload=payload, batches=tuple(batches) or None)


def entry_of(child: SpawnedTask) -> dict[str, Any]:
    """Return *child* as a load carries it."""
    given = {field.name: getattr(child, field.name) for field in fields(SpawnedTask)}
    return {name: _plain(value) for name, value in given.items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, RetryStrategy):
        return msgspec.to_builtins(value)
    return list(value) if isinstance(value, tuple) else value


class _Args(msgspec.Struct):
    tasks: list[dict[str, msgspec.Raw]]


class _Load(msgspec.Struct):
    args: _Args


def _make(ctx: Context) -> None:
    """Spawn the tasks of a load, which the service has written; their payloads are encoded."""
    for entry in msgspec.json.decode(ctx.task.payload_json, type=_Load).args.tasks:
        payload = ctx._codec.decode(bytes(entry.pop("payload", b"null")))  # noqa: SLF001  as its payload
        given = {name: msgspec.json.decode(value) for name, value in entry.items()}
        ctx.spawned.append(later_child({**given, "payload": payload}))


def _relay(_ctx: Context) -> None:
    """Do nothing: the service knows for whose members a relay of a workflow stands."""


def built_in() -> dict[str, RawHandler]:
    """Return the handlers of loads and of relays of workflows, by their names."""
    return {LOAD: _handler(LOAD, _make), RELAY_TASK: _handler(RELAY_TASK, _relay)}


def built_in_name(task: LeasedTask) -> str | None:
    """Return the name of the built-in task that *task* calls.

    The service refuses these names in payloads from outside and writes them in clear, so what a
    codec has encoded is no such task, whatever it holds.
    """
    text = bytes(task.payload_json)
    return None if b"headrace." not in text else reserved_task(text.decode())


def _handler(name: str, function: Callable[..., Any]) -> RawHandler:
    return RawHandler(
        function,
        name=name,
        queue="",
        timeouts=Timeouts.of(None, None),
        isolate=False,
        on_large_result=None,
        error_rules=ErrorRules.of(None, None),
    )
