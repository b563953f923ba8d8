"""What is copied from the console runs as it is: quoted for a shell, exact, and without a key."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.chalicelib.snippets import Snippet, of_list, of_task, quoted
from headrace import Client
from headrace.domain.access import Role
from headrace.domain.filters import TaskFilter
from headrace.domain.task import Priority
from tests.console.conftest import KEY, Browser

PAYLOAD: Final = (
    '{"to": "o\'hara $HOME `id` \\"x\\" \\n", "n": 12345678901234567890, "u": "é\u202e"}'
)
BASH: Final = ["/bin/bash", "-c"]
SHELLS: Final = (["/bin/sh", "-c"], BASH)
TAGS: Final = {"it's": 'a "b" $(c) \x1b[0m', "-x": "=,&? ü"}


def words(command: str) -> list[str]:
    """Return the words that the shells make of *command*: all of them the same."""
    first, second = (words_of(shell, command) for shell in SHELLS)
    assert first == second
    return first


def words_of(shell: list[str], command: str) -> list[str]:
    printing = 'show() { printf \'%s\\0\' "$@"; }; curl() { show curl "$@"; }; '
    printing += 'headrace() { show headrace "$@"; }; '
    ran = subprocess.run(
        [*shell, printing + command], capture_output=True, check=True,
        env={
            "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8",
            "HEADRACE_KEY": "secret", "HEADRACE_URL": "https://q.example",
        },
    )  # fmt: skip
    assert ran.stderr == b""
    return ran.stdout.decode().split("\0")[:-1]


def by_form(snippets: tuple[Snippet, ...], does: str) -> dict[str, str]:
    return {one.form: one.text for one in snippets if one.does.startswith(does)}


WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(max_examples=8, deadline=None)
@given(st.lists(WORD, min_size=1, max_size=50))
def test_any_word_is_one_word_to_a_shell(some: list[str]) -> None:
    text = " ".join(map(quoted, some))

    assert words(f"show {text}") == some
    assert all(one.isprintable() or one == "\n" for one in text)


HOSTILE: Final = (
    "\u202e'; touch owned; '",  # closes $'…' where sh does not know it
    "\x1b[201~\n$(touch owned)",  # ends a bracketed paste
    "\x03\ntouch owned\n",
    "`touch owned`\u200b$(touch owned)\\",
    "=ls",
    "",
    "\n",
    "-n\u2066\U000e0001 %s \\033",
)


def test_hostile_text_neither_runs_nor_changes_in_any_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admin: Browser
) -> None:
    monkeypatch.chdir(tmp_path)
    admin.queue("mail")
    tags = {f"tag {number}": text for number, text in enumerate(HOSTILE)}
    [task_id] = admin.put("mail", json.dumps({"x": HOSTILE}, ensure_ascii=False), tags=tags)
    copies = of_task(admin.use.tasks.get(task_id), payload=True)
    where = TaskFilter(tags=tags, error=HOSTILE[0], worker=HOSTILE[1])
    copies += of_list("mail", where, descending=True)

    for text in (copy.text for copy in copies if copy.form != "Python"):
        assert all(one.isprintable() or one == "\n" for one in text)
    command = words(by_form(copies, "Enqueue")["command"])
    assert json.loads(command[-1]) == {"x": [*HOSTILE]}
    assert [word for word in command if word.startswith("tag ")] == [
        f"{name}={value}" for name, value in tags.items()
    ]
    body = json.loads(words(by_form(copies, "Enqueue")["curl"])[-1])
    assert body["tasks"] == [{"payload": {"x": [*HOSTILE]}, "tags": tags}]
    listed = words(by_form(copies, "List")["command"])
    assert (HOSTILE[0] in listed, HOSTILE[1] in listed) == (True, True)
    asked = parse_qs(urlsplit(words(by_form(copies, "List")["curl"])[-1]).query)
    assert (asked["error"], asked["worker"]) == ([HOSTILE[0]], [HOSTILE[1]])
    assert not list(tmp_path.iterdir())


def test_a_text_with_a_nul_has_no_command_because_no_shell_can_pass_it_on() -> None:
    copies = by_form(of_list("mail", TaskFilter(error="a\0b"), descending=True), "List")

    assert set(copies) == {"curl", "Python"}
    assert "error=a%00b" in copies["curl"]


def test_one_like_it_is_enqueued_by_each_of_them(admin: Browser) -> None:
    admin.queue("mail")
    [task_id] = admin.put("mail", PAYLOAD, tags=TAGS)
    task = replace(admin.use.tasks.get(task_id), priority=Priority.HIGH, group_key="acme ltd")
    copies = by_form(of_task(task, payload=True), "Enqueue")

    curl = words(copies["curl"])
    assert curl[:5] == [
        "curl", "-sS", "-H", "Authorization: Bearer secret", "https://q.example/v1/queues/mail/tasks"
    ]  # fmt: skip
    body = curl[-1]
    assert PAYLOAD.replace("\u202e", "\\u202e") in body
    assert json.loads(body)["tasks"] == [
        {
            "payload": json.loads(PAYLOAD),
            "tags": TAGS,
            "priority": "high",
            "group_key": "acme ltd",
        }
    ]
    command = words(copies["command"])
    assert command[-3:] == ["--", "mail", PAYLOAD.replace("\u202e", "\\u202e")]
    assert command[2:10] == [
        *(word for name, value in TAGS.items() for word in ("--tag", f"{name}={value}")),
        *("--priority", "high"), *("--group", "acme ltd"),
    ]  # fmt: skip


@pytest.mark.slow
def test_command_and_python_run_as_they_are_copied(tmp_path: Path, admin: Browser) -> None:
    admin.queue("mail")
    [task_id] = admin.put("mail", PAYLOAD, tags=TAGS)
    copies = of_task(admin.use.tasks.get(task_id), payload=True)
    url = f"file:{tmp_path / 'tasks.db'}"
    env = {
        **os.environ,
        "HEADRACE_URL": url,
        "PATH": f"{Path(sys.executable).parent}:/bin:/usr/bin",
    }
    with Client(url) as client:
        client.create_queue("mail")
        for form, program in (("command", SHELLS[0]), ("Python", [sys.executable, "-c"])):
            text = by_form(copies, "Enqueue")[form]
            subprocess.run([*program, text], check=True, env=env, capture_output=True)
        made = list(client.list_tasks("mail", payload=True))
        listed = of_list("mail", TaskFilter(states=("READY",), tags=TAGS), descending=True)
        for form, program in (("command", SHELLS[0]), ("Python", [sys.executable, "-c"])):
            text = by_form(listed, "List")[form]
            out = subprocess.run([*program, text], check=True, env=env, capture_output=True).stdout
            assert all(task.id in out.decode() for task in made)

    assert [(task.payload, task.tags) for task in made] == [(json.loads(PAYLOAD), TAGS)] * 2


def test_a_list_is_asked_for_with_its_filter(admin: Browser) -> None:
    where = TaskFilter(
        states=("DEAD",),
        tags={"a b": "c&d"},
        worker="ada:1",
        scheduled_after=datetime(2026, 11, 21, 8, tzinfo=UTC),
        min_attempts=2,
        error="it's over",
    )
    copies = by_form(of_list("mail", where, descending=False), "List")

    assert words(copies["curl"])[-1] == (
        "https://q.example/v1/queues/mail/tasks?state=DEAD&worker=ada%3A1"
        "&scheduled_after=2026-11-21T08%3A00%3A00%2B00%3A00&min_attempts=2&error=it%27s%20over"
        "&tag.a%20b=c%26d&order=asc"
    )
    assert words(copies["command"]) == [
        *("headrace", "task", "list", "--state", "DEAD", "--worker", "ada:1"),
        *("--scheduled-after", "2026-11-21T08:00:00+00:00", "--min-attempts", "2"),
        *("--error", "it's over", "--tag", "a b=c&d", "--order", "asc", "--", "mail"),
    ]
    assert "from datetime import datetime" in copies["Python"]
    compile(copies["Python"], "copied", "exec")


FINGERPRINT: Final = "0" * 16
QUERIES: Final = (
    (TaskFilter(payload={"to": "o'hara $HOME"}), 'payload.to:"o\'hara $HOME"'),
    (TaskFilter(id_prefix="tsk_01"), "id:tsk_01"),
    (
        TaskFilter(states=("READY",), tags={"a": "b"}, fingerprint=FINGERPRINT),
        f"fingerprint:{FINGERPRINT}",
    ),
)


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=["payload", "id", "fingerprint"])
def test_what_has_no_field_of_its_own_is_asked_for_by_a_query(
    where: TaskFilter, query: str
) -> None:
    copies = by_form(of_list("mail", where, descending=True), "List")

    asked = parse_qs(urlsplit(words(copies["curl"])[-1]).query)
    assert asked.pop("query") == [query]
    also = {"state": ["READY"], "tag.a": ["b"]} if where.states else {}
    assert asked == {**also, "order": ["desc"]}
    command = words(copies["command"])
    assert command[command.index("--query") + 1] == query
    assert f", query={query!r}, " in copies["Python"]


@pytest.mark.slow
def test_a_query_that_is_copied_finds_the_task(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'tasks.db'}"
    with Client(url) as client:
        client.create_queue("mail")
        meant = client.enqueue("mail", {"to": "o'hara"}).id
        client.enqueue("mail", {"to": "ada"})
    where = TaskFilter(payload={"to": "o'hara"}, id_prefix="tsk_")
    copies = by_form(of_list("mail", where, descending=True), "List")
    program = Path(sys.executable).parent
    env = {**os.environ, "HEADRACE_URL": url, "PATH": f"{program}:/bin:/usr/bin"}

    for form, runs in (("command", SHELLS[0]), ("Python", [sys.executable, "-c"])):
        ran = subprocess.run([*runs, copies[form]], check=True, env=env, capture_output=True)
        assert re.findall("tsk_[0-9A-Za-z]+", ran.stdout.decode()) == [meant], form


def test_pages_offer_them_without_a_key_and_payloads_only_to_who_may_see_them(
    admin: Browser,
) -> None:
    admin.queue("mail")
    [task_id] = admin.put("mail", '{"to":"ada"}')

    shown = admin.get(f"/console/tasks/{task_id}")
    copied = [one.attributes["data-copy"] for one in shown.page.all("button", class_="copy")]
    assert sum("headrace" in text for text in copied) >= 4
    assert KEY not in shown.body
    viewer = admin.as_role(Role.VIEWER).get(f"/console/tasks/{task_id}")
    assert "headrace task show" in viewer.text
    assert "headrace enqueue" not in viewer.text
    listed = admin.get("/console/queues/mail?state=ready").page.one("details", class_="snippets")
    assert "headrace task list --state READY --order asc -- mail" in listed.text
