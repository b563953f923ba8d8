"""What is copied from a page runs as it is: quoted for a shell, exact, and without a key."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from headrace import Client
from headrace.domain.access import Role
from headrace.domain.filters import TaskFilter
from headrace.domain.query import Query, query_text, read
from tests.console.conftest import KEY, Browser, Shown

PAYLOAD: Final = (
    '{"to": "o\'hara $HOME `id` \\"x\\" \\n", "n": 12345678901234567890, "u": "é\u202e"}'
)
TAGS: Final = {"it's": 'a "b" $(c) \x1b[0m', "-x": "=,&? ü"}
HOSTILE: Final = (
    "\u202e'; touch owned; '",  # closes $'…' where sh does not know it
    "\x1b[201~\n$(touch owned)",  # ends a bracketed paste
    "\x03\ntouch owned\n",
    "`touch owned`\u200b$(touch owned)\\",
    "-n\u2066\U000e0001 %s \\033",
)


def copies(shown: Shown, does: str) -> dict[str, str]:
    """Return by its form each text that a page offers to copy, of those that do *does*."""
    found = {}
    for button in shown.page.all("button", class_="copy"):
        name = button.attributes["aria-label"].removeprefix("Copy: ")
        if name.startswith(does) and " as " in name:
            found[name.rpartition(" as ")[2]] = button.attributes["data-copy"]
    return found


def words(command: str) -> list[str]:
    """Return the words that sh and bash make of *command*, which must be the same."""
    first, second = (_words(shell, command) for shell in ("/bin/sh", "/bin/bash"))
    assert first == second
    assert all(one.isprintable() or one == "\n" for one in command)
    return first


def _words(shell: str, command: str) -> list[str]:
    printing = 'show() { printf \'%s\\0\' "$@"; }; curl() { show curl "$@"; }; '
    printing += 'headrace() { show headrace "$@"; }; '
    ran = subprocess.run(
        [shell, "-c", printing + command], capture_output=True, check=True,
        env={
            "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8",
            "HEADRACE_KEY": "secret", "HEADRACE_URL": "https://q.example",
        },
    )  # fmt: skip
    assert ran.stderr == b""
    return ran.stdout.decode().split("\0")[:-1]


def test_hostile_text_neither_runs_nor_changes_in_any_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admin: Browser
) -> None:
    monkeypatch.chdir(tmp_path)
    admin.queue("mail")
    tags = {f"tag {number}": text for number, text in enumerate(HOSTILE)}
    [task_id] = admin.put("mail", json.dumps({"x": HOSTILE}, ensure_ascii=False), tags=tags)
    task = copies(admin.get(f"/console/tasks/{task_id}"), "Enqueue")
    where = TaskFilter(error=HOSTILE[0], worker=HOSTILE[3])
    query = urlencode({"q": query_text(Query(where))})
    listed = copies(admin.get(f"/console/queues/mail?{query}"), "List")

    command = words(task["command"])
    assert json.loads(command[-1]) == {"x": [*HOSTILE]}
    assert [word for word in command if word.startswith("tag ")] == [
        f"{name}={value}" for name, value in tags.items()
    ]
    body = json.loads(words(task["curl"])[-1])
    assert body["tasks"] == [{"payload": {"x": [*HOSTILE]}, "tags": tags}]
    asked = words(listed["command"])
    assert read(asked[asked.index("--query") + 1]).where == where
    [sent] = parse_qs(urlsplit(words(listed["curl"])[-1]).query)["query"]
    assert read(sent).where == where
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_command_and_python_run_as_they_are_copied(tmp_path: Path, admin: Browser) -> None:
    admin.queue("mail")
    [task_id] = admin.put("mail", PAYLOAD, tags=TAGS)
    new = copies(admin.get(f"/console/tasks/{task_id}"), "Enqueue")
    query = urlencode({"q": "state:ready payload.n:12345678901234567890"})
    listed = copies(admin.get(f"/console/queues/mail?{query}"), "List")
    url = f"file:{tmp_path / 'tasks.db'}"
    path = f"{Path(sys.executable).parent}:/bin:/usr/bin"
    env = {**os.environ, "HEADRACE_URL": url, "PATH": path}
    programs = {"command": ["/bin/sh", "-c"], "Python": [sys.executable, "-c"]}

    def run(form: str, text: str) -> str:
        ran = subprocess.run([*programs[form], text], check=True, env=env, capture_output=True)
        return ran.stdout.decode()

    with Client(url) as client:
        client.create_queue("mail")
        for form in programs:
            run(form, new[form])
        made = list(client.list_tasks("mail", payload=True))
        for form in programs:
            shown = run(form, listed[form])
            assert all(task.id in shown for task in made)

    assert [(task.payload, task.tags) for task in made] == [(json.loads(PAYLOAD), TAGS)] * 2


def test_pages_offer_no_key_and_payloads_only_to_roles_that_may_see_them(admin: Browser) -> None:
    admin.queue("mail")
    [task_id] = admin.put("mail", '{"to":"ada"}')
    path = f"/console/tasks/{task_id}"

    shown = admin.get(path)
    assert copies(shown, "Enqueue").keys() == {"curl", "command", "Python"}
    assert KEY not in shown.body
    viewer = admin.as_role(Role.VIEWER).get(path)
    assert copies(viewer, "Show").keys() == {"curl", "command", "Python"}
    assert copies(viewer, "Enqueue") == {}
