"""The same request as curl, command and Python, to copy: quoted for a shell, and without a key.

Whoever runs them has ``HEADRACE_URL`` and ``HEADRACE_KEY`` set, as in the guide.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlencode

from headrace.domain.filters import TaskFilter
from headrace.domain.limits import utf8_bytes
from headrace.domain.query import Query, written
from headrace.domain.task import Task

_CURL: Final = 'curl -sS -H "Authorization: Bearer $HEADRACE_KEY" "$HEADRACE_URL'
_MOST: Final = 16_384  # bytes of a payload that a command line should carry
_PYTHON: Final = """import json

from headrace import Client

with Client() as client:
    {}
"""


@dataclass(frozen=True, slots=True)
class Snippet:
    """What to copy: what it does, in which form, and the text of it."""

    does: str
    form: str
    text: str

    @property
    def name(self) -> str:
        """What a button says of it."""
        return f"{self.does} as {self.form}"


def of_task(task: Task, *, payload: bool) -> tuple[Snippet, ...]:
    """Return the snippets of a task; with its *payload* also how one like it is enqueued."""
    shown = tuple(_shown(task.id))
    text = task.payload
    if not payload or text is None or utf8_bytes(text) > _MOST:
        return shown
    return (*shown, *_enqueued(task, text))


def of_list(queue: str, where: TaskFilter, *, descending: bool) -> tuple[Snippet, ...]:
    """Return the snippets of a list."""
    return tuple(_listed(queue, where, descending=descending))


def _shown(task_id: str) -> Iterator[Snippet]:
    does = "Show this task"
    yield Snippet(does, "curl", f'{_CURL}/v1/tasks/{quote(task_id, safe="")}"')
    yield Snippet(does, "command", _words("headrace", "task", "show", "--", task_id))
    yield Snippet(does, "Python", _python(f"print(client.get_task({task_id!r}))"))


def _enqueued(task: Task, payload: str) -> Iterator[Snippet]:
    does = "Enqueue one like it"
    more = {
        "tags": dict(task.tags) or None,
        "priority": None if task.priority is None else task.priority.value,
        "group_key": task.group_key,
    }
    more = {name: value for name, value in more.items() if value is not None}
    rest = "".join(f", {json.dumps(name)}: {json.dumps(value)}" for name, value in more.items())
    body = f'{{"tasks": [{{"payload": {payload}{rest}}}]}}'
    yield Snippet(
        does,
        "curl",
        f'{_CURL}/v1/queues/{quote(task.queue, safe="")}/tasks" '
        f"-H 'Content-Type: application/json' --data-raw {quoted(body)}",
    )
    options = [word for name, value in task.tags.items() for word in ("--tag", f"{name}={value}")]
    options += ["--priority", str(more["priority"])] if "priority" in more else []
    options += ["--group", str(more["group_key"])] if "group_key" in more else []
    command = _words("headrace", "enqueue", *options, "--", task.queue, payload)
    yield Snippet(does, "command", command)
    given = "".join(f", {name}={value!r}" for name, value in more.items())
    call = f"client.enqueue({task.queue!r}, json.loads({payload!r}){given})"
    yield Snippet(does, "Python", _python(call))


def _listed(queue: str, where: TaskFilter, *, descending: bool) -> Iterator[Snippet]:
    does = "List these tasks"
    order = "desc" if descending else "asc"
    queried = TaskFilter(
        payload=where.payload, fingerprint=where.fingerprint, id_prefix=where.id_prefix
    )  # what has no field of its own
    named: Mapping[str, str | int | datetime | None] = {
        "state": ",".join(where.states) or None,
        "worker": where.worker,
        "scheduled_after": where.scheduled_after,
        "scheduled_before": where.scheduled_before,
        "min_attempts": where.min_attempts,
        "error": where.error,
        "priority": None if where.priority is None else where.priority.value,
        "group_key": where.group_key,
        "query": written(Query(queried)) or None,
    }
    given = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in named.items()
        if value is not None
    }
    tags = {f"tag.{name}": value for name, value in where.tags.items()}
    query = urlencode({**given, **tags, "order": order}, quote_via=quote, safe="")
    yield Snippet(does, "curl", f'{_CURL}/v1/queues/{quote(queue, safe="")}/tasks?{query}"')
    options = [
        word
        for name, value in given.items()
        for word in (f"--{'group' if name == 'group_key' else name.replace('_', '-')}", str(value))
    ]
    options += [word for name, value in where.tags.items() for word in ("--tag", f"{name}={value}")]
    command = _words("headrace", "task", "list", *options, "--order", order, "--", queue)
    yield Snippet(does, "command", command)
    arguments = "".join(
        f", {name}={f'datetime.fromisoformat({value!r})' if 'scheduled' in name else repr(value)}"
        for name, value in given.items()
    )
    arguments += f", tags={dict(where.tags)!r}" if where.tags else ""
    loop = (
        f"for task in client.list_tasks({queue!r}{arguments}, order={order!r}):\n"
        "        print(task.id, task.status)"
    )
    yield Snippet(does, "Python", _python(loop))


def _python(body: str) -> str:
    text = _PYTHON.format(body)
    if "json." not in body:
        text = text.removeprefix("import json\n\n")
    return f"from datetime import datetime\n\n{text}" if "datetime." in body else text


def _words(*words: str) -> str:
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    """Return *word* quoted for bash and zsh, with control and bidi characters as escapes."""
    if all(one.isprintable() or one in "\n\t" for one in word):
        return shlex.quote(word)
    parts = (
        one.replace("\\", "\\\\").replace("'", "\\'") if one.isprintable() else _escaped(one)
        for one in word
    )
    return f"$'{''.join(parts)}'"


def _escaped(one: str) -> str:
    number = ord(one)
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"
