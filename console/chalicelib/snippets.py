"""The same request as curl, command and Python, to copy: safe in every POSIX shell, without a key.

They read ``HEADRACE_URL`` and ``HEADRACE_KEY`` from the environment, as in the guide.
"""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from urllib.parse import quote, urlencode

from headrace.domain.filters import TaskFilter
from headrace.domain.limits import utf8_bytes
from headrace.domain.query import Query, query_text
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
    """A text to copy: its action, its language, and the text."""

    does: str
    form: str
    text: str

    @property
    def name(self) -> str:
        """The label of its button."""
        return f"{self.does} as {self.form}"


def of_task(task: Task, *, payload: bool) -> tuple[Snippet, ...]:
    """Return the snippets of a task; with *payload* also one that enqueues such a task."""
    shown = tuple(_shown(task.id))
    text = task.payload
    if not payload or text is None or utf8_bytes(text) > _MOST:
        return shown
    return (*shown, *_enqueued(task, text))


def of_list(queue: str, where: TaskFilter, *, descending: bool) -> tuple[Snippet, ...]:
    """Return the snippets of a list."""
    return tuple(_listed(queue, query_text(Query(where)), descending=descending))


def _shown(task_id: str) -> Iterator[Snippet]:
    does = "Show this task"
    yield Snippet(does, "curl", f'{_CURL}/v1/tasks/{quote(task_id, safe="")}"')
    yield from _command(does, "task", "show", "--", task_id)
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
    shown = _json_text(payload)
    body = f'{{"tasks": [{{"payload": {shown}{rest}}}]}}'
    yield Snippet(
        does,
        "curl",
        f'{_CURL}/v1/queues/{quote(task.queue, safe="")}/tasks" '
        f"-H 'Content-Type: application/json' --data-raw {quoted(body)}",
    )
    options = [word for name, value in task.tags.items() for word in ("--tag", f"{name}={value}")]
    options += ["--priority", str(more["priority"])] if "priority" in more else []
    options += ["--group", str(more["group_key"])] if "group_key" in more else []
    yield from _command(does, "enqueue", *options, "--", task.queue, shown)
    given = "".join(f", {name}={value!r}" for name, value in more.items())
    call = f"client.enqueue({task.queue!r}, json.loads({payload!r}){given})"
    yield Snippet(does, "Python", _python(call))


def _listed(queue: str, text: str, *, descending: bool) -> Iterator[Snippet]:
    does = "List these tasks"
    order = "desc" if descending else "asc"
    given = {"query": text, "order": order} if text else {"order": order}
    query = urlencode(given, quote_via=quote, safe="")
    yield Snippet(does, "curl", f'{_CURL}/v1/queues/{quote(queue, safe="")}/tasks?{query}"')
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    yield from _command(does, "task", "list", *options, "--", queue)
    arguments = "".join(f", {name}={value!r}" for name, value in given.items())
    loop = (
        f"for task in client.list_tasks({queue!r}{arguments}):\n        print(task.id, task.status)"
    )
    yield Snippet(does, "Python", _python(loop))


def _python(body: str) -> str:
    text = _PYTHON.format(body)
    return text if "json." in body else text.removeprefix("import json\n\n")


def _command(does: str, *words: str) -> Iterator[Snippet]:
    """Yield the command, or nothing where a word has a NUL, which no shell can pass on."""
    if not any("\0" in word for word in words):
        yield Snippet(does, "command", " ".join(map(quoted, ("headrace", *words))))


def quoted(word: str) -> str:
    """Return *word* quoted for any POSIX shell, without characters that a terminal acts on.

    Control and invisible characters are written as octal bytes for ``printf``.  Raise ValueError
    for a NUL, which no shell can pass on.
    """
    if "\0" in word:
        raise ValueError("a shell word cannot hold a NUL character")
    if word.startswith("="):  # zsh would look for a program of that name
        return f"'='{quoted(word[1:])}" if word[1:] else "'='"
    parts = [_quoted_run(text, plain=plain) for plain, text in _runs(word)]
    return "".join(parts) or "''"


def _runs(word: str) -> Iterator[tuple[bool, str]]:
    """Split *word* where characters that are safe to paste begin or end."""
    for plain, letters in groupby(word, lambda one: one.isprintable() or one == "\n"):
        yield plain, "".join(letters)


def _quoted_run(text: str, *, plain: bool) -> str:
    if plain:
        return shlex.quote(text)
    octal = "".join(f"\\{byte:03o}" for byte in text.encode("utf-8", "surrogatepass"))
    return f"\"$(printf '{octal}')\""


def _json_text(text: str) -> str:
    """Return the JSON *text* with control and invisible characters as JSON escapes.

    Outside of strings the only ones are space between tokens.
    """
    return "".join(
        one if one.isprintable() else " " if one in "\t\r\n" else _json_escape(one) for one in text
    )


def _json_escape(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
