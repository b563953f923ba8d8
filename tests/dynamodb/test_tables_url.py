"""A program with a deployment's tables for a service: no API Gateway, no Lambda, its own rights."""

import os
import threading
from collections.abc import Callable

import pytest

from headrace import App, Client, Report, Worker
from headrace.cli.main import main
from headrace.client.embedding import timers_of
from headrace.client.settings import ClientSettings
from headrace.domain.errors import Forbidden, InvalidRequest, Unauthenticated
from headrace.local.tables import TableNames
from tests.aws import REGION, URL, Account


@pytest.mark.gate
def test_what_one_client_puts_in_another_takes_out(aws: Account) -> None:
    with Client(URL) as producer, Client(URL) as consumer:
        producer.create_queue("mail")
        task = producer.enqueue("mail", {"to": "ada"})
        (taken,) = consumer.dequeue("mail", worker="w").tasks

        assert (taken.id, taken.payload) == (task.id, {"to": "ada"})
        report = Report(task_id=taken.id, lease_id=taken.lease.id, status="SUCCEEDED")
        assert consumer.report("mail", [report])[0].outcome == "OK"
        assert producer.get_task(taken.id).state == "SUCCEEDED"


@pytest.mark.parametrize(
    ("variables", "asked"),
    [((), 1), (("TASKS",), 1), (("TASKS", "CONTROL"), 0)],  # one name alone names no tables
)
def test_the_stack_is_asked_once_unless_the_environment_names_the_tables(
    aws: Account, monkeypatch: pytest.MonkeyPatch, variables: tuple[str, ...], asked: int
) -> None:
    for name in variables:
        monkeypatch.setenv(f"HEADRACE_{name}_TABLE", getattr(aws.tables, name.lower()))
    with Client(URL) as first, Client(URL) as second:
        first.create_queue("mail")
        second.enqueue("mail", 1)

    assert aws.calls["DescribeStacks"] == asked
    assert aws.regions == {REGION}


def test_a_task_enqueued_by_itself_is_one_request(aws: Account) -> None:
    with Client(URL) as client:
        client.create_queue("mail")
        client.enqueue("mail", 1)
        aws.calls.clear()
        client.enqueue("mail", 2)

    assert aws.calls == {"BatchExecuteStatement": 1}


@pytest.mark.gate
def test_a_worker_runs_tasks_and_does_not_let_the_service_wait(aws: Account) -> None:
    app = App(Client(URL))
    seen: list[int] = []

    @app.task(queue="mail")
    def note(number: int) -> None:
        seen.append(number)

    for number in range(30):
        note.enqueue(number)
    Worker(app).run(burst=True)
    assert sorted(seen) == list(range(30))

    answer = app.client.dequeue("mail")
    assert not answer.tasks
    assert answer.poll_after_seconds == 1.0  # as in the cloud: more than a worker lets it wait for


def test_no_timers_run_in_the_process(aws: Account) -> None:
    with timers_of(ClientSettings.of(URL, env={}).address):
        names = {thread.name for thread in threading.enumerate()}

    assert not [name for name in names if name.startswith("headrace-")]


def test_the_settings_of_the_stack_hold(aws: Account) -> None:
    aws.parameters["SettingsTtlSeconds"] = "0"
    with Client(URL) as client:
        client.create_queue("mail")
        client.enqueue("mail", 1)
        aws.calls.clear()
        client.enqueue("mail", 1)

    assert aws.calls["GetItem"] > 0  # the queue is looked up again


def test_a_child_of_a_fork_opens_other_connections(aws: Account) -> None:
    with Client(URL) as client:
        client.create_queue("mail")
        child = os.fork()
        if not child:  # pragma: no cover  another process
            client.enqueue("mail", "child")
            os._exit(0)
        client.enqueue("mail", "parent")
        _, status = os.waitpid(child, 0)

        assert status == 0
        assert aws.calls["DescribeStacks"] == 2
        assert sorted(task.payload for task in client.list_tasks("mail", payload=True)) == [
            "child",
            "parent",
        ]


def nowhere(_: Account) -> str:
    return f"dynamodb://{REGION}/nowhere"


def of_something_else(aws: Account) -> str:
    del aws.outputs["TasksTableName"]
    return URL


def without_its_tables(aws: Account) -> str:
    aws.tables = TableNames("gone", "gone-too")
    aws.outputs |= {"TasksTableName": "gone", "ControlTableName": "gone-too"}
    return URL


@pytest.mark.parametrize(
    ("url_of", "message"),
    [
        (nowhere, "url means the stack nowhere in eu-west-1: it does not exist"),
        (of_something_else, "names no tables of Headrace: it is UPDATE_COMPLETE"),
        (without_its_tables, "has no such table"),
    ],
)
def test_a_stack_that_is_not_headraces_is_a_wrong_url(
    aws: Account, url_of: Callable[[Account], str], message: str
) -> None:
    with Client(url_of(aws)) as client, pytest.raises(InvalidRequest, match=message):
        client.enqueue("mail", 1)


def test_without_the_right_to_describe_the_stack_the_action_is_named(aws: Account) -> None:
    aws.stack_readable = False
    with (
        Client(URL) as client,
        pytest.raises(
            Forbidden, match=r"IAM refuses DescribeStacks .* cloudformation:DescribeStacks"
        ),
    ):
        client.enqueue("mail", 1)


def test_without_credentials_that_is_what_is_said(
    aws: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with Client(URL) as client, pytest.raises(Unauthenticated, match="without credentials"):
        client.enqueue("mail", 1)


def command(*arguments: str) -> int:
    """Run one, and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_the_command_needs_no_key(
    aws: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_URL", URL)

    assert command("queue", "create", "mail") == 0
    assert command("enqueue", "mail", "{}", "--id", "first") == 0
    assert "first" in capsys.readouterr().out
    assert command("task", "show", "nobody") == 3
    assert command("--url", f"dynamodb://{REGION}/nowhere", "queue", "list") == 2
