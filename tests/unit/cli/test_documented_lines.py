"""Every `headrace …` line of the README and the guides runs."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import pytest

from headrace import NewTask, Report
from headrace.cli.commands import CliGroup
from headrace.cli.main import main
from headrace.cli.session import CliSession, Exit
from tests.documented_lines import ROOT, Line, command_lines
from tests.faults import FaultyService
from tests.unit.cli.cli_runner import Ran, invoke
from tests.unit.outbox.shop import OUTBOX, shop_in

ELSEWHERE: Final = {
    "run": "tests/functional/test_cli.py",  # each of its lines, in a process of its own
    "smoke": "tests/functional/test_smoke.py",
    "timers": "tests/unit/cli/test_file.py",
    "backup": "tests/unit/cli/test_file.py",
    "task tail": "tests/functional/test_cli.py",
    "station start": "tests/pipeline/test_station_command.py",
    "lake rollup": "tests/pipeline/test_command.py",
    "lake backfill": "tests/pipeline/test_command.py",
    "lake proof": "tests/pipeline/test_command.py",
    "lake replay": "tests/pipeline/test_command.py",
    "work --processes": "tests/functional/test_work_processes.py",
    "work --outbox django:": "tests/unit/outbox/test_django.py",
    "enqueue --payload-file": "tests/functional/test_local_uploads.py",
    "stats --watch": "tests/unit/cli/test_operators.py",
}
"""Commands that need another process, Spark or Django, or never end: the test that runs them."""

VALUES: Final = {
    "INSTANT": "2026-11-21T08:00:00Z",
    "N": "5",
    "PATTERN": "mail",
    "QUEUE": "mail",
    "ROLE": "producer",
}
"""What stands for the words in capitals of a line."""

MODULES: Final = ("app", "jobs", "mail", "module", "shop/__init__", "shop/app", "shop/tasks")
APP: Final = """
from headrace import App
app = App(queue="mail")
@app.task(name="mail.send")
def send(to: str) -> None: ...
app.queue("urgent", work=True)
app.queue("bulk", work=True)
"""
EXPIRED: Final = datetime(2020, 1, 1, tzinfo=UTC)

LINES: Final = command_lines()


@dataclass
class World:
    """A service, and a folder with apps and files, for one line."""

    service: FaultyService
    folder: Path

    @property
    def outbox(self) -> str:
        return f"sqlite:///{self.folder / 'outbox.db'}"

    @property
    def session(self) -> CliSession:
        return CliSession(
            given_client=self.service.client,
            env={"HEADRACE_OUTBOX": self.outbox},
            now=self.service.clock,
            at_terminal=lambda: False,
        )

    def run(self, *words: str) -> Ran:
        return invoke(*words, session=self.session)

    def json(self, *words: str) -> Any:
        ran = self.run(*words, "--json")
        assert ran.code == 0, f"{words}: {ran.err}"
        return ran.json

    def make_queues(self, *names: str) -> None:
        known = {queue.name for queue in self.service.client.list_queues()}
        for name in dict.fromkeys(names):
            if name not in known:
                self.service.client.create_queue(name)

    def make_task(self, name: str, queue: str, verb: str) -> None:
        """Make a task that *verb* applies to."""
        client = self.service.client
        client.enqueue(queue, {}, id=name, delay_in_seconds=60 if verb == "trigger" else None)
        if verb not in ("restart", "wait"):
            return
        self.service.clock.forward(1)
        (task,) = client.dequeue(queue).tasks
        dead = verb == "restart"
        report = Report.on(task, "FAILED" if dead else "SUCCEEDED", retryable=not dead)
        client.report(queue, [report])

    def make_id(self, noun: str, verb: str) -> str:
        """Make an action, an undo or a key that *verb* applies to, and return its id."""
        self.make_queues("mail")
        if noun == "key":
            return self.service.client.create_key("shop", "viewer", ["mail"]).id
        self.make_task("one", "mail", "trigger")
        if noun == "undo":
            return str(self.json("task", "delete", "one", "--undo-for", "1d")["undos"][0]["id"])
        made = self.json("task", "trigger", "--queue", "mail", "--all", "--background")
        if verb == "resume":
            self.json("action", "pause", made["id"])
        return str(made["id"])

    def make_outbox(self, *ids: str) -> None:
        """Make an outbox with a refused row for each of *ids*."""
        self.make_queues("mail")
        with shop_in(self.outbox, self.service) as shop, shop.session() as session:
            OUTBOX.add_many(session, "mail", [NewTask(id=one, expires_at=EXPIRED) for one in ids])
            session.commit()
        self.run("outbox", "relay", self.outbox, "--burst")

    def make_subject(self, path: list[str], params: dict[str, Any]) -> None:
        """Make what a line speaks of."""
        noun, verb = path[0], path[-1]
        queue = params.get("queue") or "mail"
        if noun == "task":
            queue = "letters" if verb == "move" else queue
            self.make_queues(queue)
            for one in params.get("ids") or filter(None, [params.get("id")]):
                self.make_task(one, queue, verb)
        elif noun == "batch" and "id" in params:
            self.service.client.create_batch(id=params["id"])
        elif noun == "schedule" and verb not in ("put", "list", "next"):
            self.service.client.put_schedule(queue, params["name"], every_seconds=60)
        elif noun == "worker" and "name" in params:
            body = {"queues": ["mail"], "concurrency": 1, "running": []}
            self.service.client.call("PUT", f"/v1/workers/{params['name']}", body=body)
        elif verb == "reindex":
            self.json("queue", "edit", queue, "--set", 'indexed_fields=["tag:tenant"]')
        elif any(where[0] == "target" for where, _ in params.get("assigned") or ()):
            self.json("queue", "edit", queue, "--target-url", "https://example.com/tasks")

    def more_words(self, path: list[str], params: dict[str, Any]) -> list[str]:
        """Make the outbox of a line.  Return the words that make the line end."""
        if params.get("outbox") or (path[0] == "outbox" and path[-1] != "create"):
            self.make_outbox(*params.get("ids", ()))
        if path in (["work"], ["outbox", "relay"]) and not params["burst"]:
            return ["--burst"]
        return []


def command_of(words: tuple[str, ...]) -> tuple[click.Command, list[str], list[str]]:
    """Return the command that *words* name, the words of its path, and the words after those."""
    command: click.Command = main
    path: list[str] = []
    while isinstance(command, CliGroup) and len(path) < len(words):
        with click.Context(command) as context:
            inner = command.get_command(context, words[len(path)])
        if inner is None:
            break
        command = inner
        path.append(words[len(path)])
    return command, path, list(words[len(path) :])


def option_names(command: click.Command) -> set[str]:
    with click.Context(command) as context:
        params = command.get_params(context)
    return {name for one in params for name in (*one.opts, *one.secondary_opts)} | {"--help"}


def is_shortened(command: click.Command, path: list[str], given: list[str]) -> bool:
    """Tell whether a line leaves out what its command needs, as in `headrace work --burst`."""
    if isinstance(command, CliGroup) or any("…" in word or "$" in word for word in given):
        return True
    if path in (["task", "restart"], ["task", "cancel"]) and not given:
        return True
    try:
        words = [VALUES.get(word, word) for word in given]
        with command.make_context("headrace", words, obj=CliSession(env={})):
            return False
    except click.MissingParameter:
        return True
    except click.UsageError:
        return False


def runs_elsewhere(path: str, given: list[str]) -> str | None:
    """Return the row of ELSEWHERE for a line, or None if the test below runs it."""
    for name in ELSEWHERE:
        command, dash, option = name.partition(" --")
        if path == command and f"{dash.strip()}{option}" in " ".join(given):
            return name
    return None


def prepared(
    world: World, command: click.Command, path: list[str], given: list[str], *, fails: bool
) -> list[str]:
    """Make what the line speaks of, and return its words with values for those in capitals."""
    noun, verb = path[0], path[-1]
    words = []
    for word in given:
        if word == "ID" and noun in ("action", "undo", "key"):
            words.append(world.make_id(noun, verb))
        elif word == "FILE":
            words.append("tasks.ndjson")
        elif word == "NAME" and noun == "queue":
            words.append("mail")
        elif word == "URL" or word.startswith("postgresql://"):
            words.append(world.outbox)
        else:
            words.append(VALUES.get(word, word))
    with command.make_context("headrace", list(words), obj=world.session) as context:
        params = context.params
    if path == ["queue", "create"] or fails:
        return words
    if noun not in ("key", "work", "sync"):
        queues = [params.get("queue"), params.get("to"), *(params.get("queues") or ())]
        world.make_queues("ends", "ops", *filter(None, queues))
    world.make_subject(path, params)
    words += world.more_words(path, params)
    if "--yes" in option_names(command) and "--yes" not in words:
        words.append("--yes")
    return words


@pytest.mark.parametrize("page", sorted({line.page for line in LINES}))
def test_every_line_of_the_documentation_runs(page: str, tmp_path: Path) -> None:
    for number, line in enumerate(LINES):
        if line.page == page:
            with world_in(tmp_path / str(number)) as world:
                check_line(line, world)


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    """Make a service, and a folder with the apps and files that lines name."""
    folder.mkdir()
    known = set(sys.modules)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    for name in MODULES:
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(APP)
    (folder / "film.bin").write_bytes(b"film")
    (folder / "tasks.ndjson").write_text("{}\n")
    with pytest.MonkeyPatch.context() as patch, FaultyService() as service:
        patch.chdir(folder)
        patch.setattr(sys, "path", sys.path[:])
        yield World(service, folder)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in ("app", "jobs", "mail", "module", "shop"):
            del sys.modules[name]


def check_line(line: Line, world: World) -> None:
    command, path, given = command_of(line.words)
    assert path or given == ["--help"], f"no command {line.words}"
    unknown = {one.partition("=")[0] for one in given if one[:1] == "-" and len(one) > 1}
    assert unknown <= option_names(command), line.words
    if is_shortened(command, path, given):
        return
    elsewhere = runs_elsewhere(" ".join(path), given)
    if elsewhere is not None:
        text = (ROOT / ELSEWHERE[elsewhere]).read_text()
        assert f'"{elsewhere.split()[-1]}"' in text, f"{line.page}: {elsewhere}"
        return

    words = prepared(world, command, path, given, fails=line.fails)
    ran = world.run(*path, *words)

    expected = {Exit.DONE, Exit.DIFFERENT} if "--dry-run" in words else {Exit.DONE}
    assert (ran.code not in expected) is line.fails, f"{line.words}: {ran.code} {ran.err}"
