"""`headrace sync`: the diff, what is applied, and how it ends."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.cli.session import CliSession, Exit
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli, Ran, invoke

QUEUE = """
from headrace import App
app = App({named})
app.queue("mail", {settings})
@app.task(queue="mail", name="digest")
def digest(to: str = "all") -> None: ...
"""

Deploy = Callable[..., None]


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """Write the program: its queue's settings, its schedules by name and cron."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def write(settings: str = "shards=2", *, named: str = "", **schedules: str) -> None:
        lines = [
            f"app.periodic(cron={cron!r}, name={name!r})(digest)\n"
            for name, cron in schedules.items()
        ]
        text = QUEUE.format(settings=settings, named=named) + "".join(lines)
        (tmp_path / "a_deploy.py").write_text(text)
        sys.modules.pop("a_deploy", None)

    yield write
    sys.modules.pop("a_deploy", None)


@pytest.fixture
def cli(headrace_service: MemoryService, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # versions follow within a second
    return Cli(headrace_service)


def sync(cli: Cli, *words: str) -> Ran:
    return cli("sync", "a_deploy:app", *words)


def test_it_shows_what_it_does_and_then_has_nothing_to_do(cli: Cli, deploy: Deploy) -> None:
    deploy(early="0 8 * * *")

    first, again = sync(cli), sync(cli)

    assert (first.code, again.code) == (0, 0)
    assert first.out == (
        "+ queue mail\n"
        "    shards: 2\n"
        "+ schedule early of mail\n"
        "    cron: 0 8 * * *\n"
        '    payload: {"task":"digest","args":{}}\n'
        "    tags.headrace-app: a_deploy:app\n"
    )
    assert first.err == "2 created; 0 as declared.\n"
    assert (again.out, again.err) == ("", "Nothing to do: 2 things as declared.\n")


def test_a_dry_run_changes_nothing_and_has_an_exit_code_of_its_own(
    cli: Cli, deploy: Deploy
) -> None:
    deploy(early="0 8 * * *", late="0 20 * * *")
    sync(cli)
    assert sync(cli, "--dry-run").code == 0
    deploy("shards=3, retry_strategy={'max_retries': 9}", early="0 9 * * *")

    ran = sync(cli, "--prune", "--dry-run")

    assert ran.code == Exit.DIFFERENT
    assert ran.out == (
        "~ queue mail\n"
        "    shards: 2 → 3\n"
        "    retry_strategy.max_retries: 5 → 9\n"
        "~ schedule early of mail\n"
        "    cron: 0 8 * * * → 0 9 * * *\n"
        "- schedule late of mail\n"
    )
    assert ran.err == "2 would be changed, 1 would be removed; 0 as declared.\n"
    assert cli.service.client.get_queue("mail").shards == 2


def test_payloads_that_the_app_encrypts_are_neither_shown_nor_sent_in_the_clear(
    headrace_service: MemoryService, deploy: Deploy, tmp_path: Path
) -> None:
    deploy()
    (tmp_path / "a_secret.py").write_text(
        "import json\nfrom headrace import App\n"
        "class Turned:\n"
        "    def encode(self, value): return json.dumps(json.dumps(value)[::-1]).encode()\n"
        "    def decode(self, text): return json.loads(json.loads(text)[::-1])\n"
        "app = App(codec=Turned())\n"
        "@app.periodic(every=60, args={'to': 'kay'})\n"
        "@app.task(queue='mail', name='digest')\n"
        "def digest(to: str) -> None: ...\n"
    )
    session = CliSession(
        env={"HEADRACE_URL": headrace_service.url, "HEADRACE_KEY": headrace_service.key},
        transport=headrace_service.transport,
    )

    ran = invoke("sync", "a_secret:app", session=session)
    again = invoke("sync", "a_secret:app", "--dry-run", session=session)

    assert (ran.code, again.code) == (0, 0), ran.err
    assert "    payload: (encrypted)\n" in ran.out
    assert "kay" not in ran.out
    stored = bytes(headrace_service.client.get_schedule("mail", "digest").payload_json)
    assert b"yak" in stored
    assert b"kay" not in stored
