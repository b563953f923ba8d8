"""Where the tasks are, by options, environment and folder; and what is said when nothing tells."""

import dataclasses
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from headrace.domain.errors import InvalidRequest
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.local.tables import TableNames
from headrace.spark.sources import connect
from headrace.spark.sources.connect import StoreConnection
from headrace.store.sqlite import SqliteStore
from tests.aws import REGION, URL, Account, account


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Give an environment that says nothing of a service, in a folder where none runs."""
    for name in [*os.environ]:
        if name.startswith(("AWS_", "HEADRACE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return monkeypatch


@pytest.mark.usefixtures("unknown")
def test_without_a_service_it_says_how_to_name_one() -> None:
    with pytest.raises(InvalidRequest) as failed:
        connect.opened(StoreConnection.of({"tasks_table": "unfound"}))

    assert str(failed.value) == (
        "no local service runs here, and no region is known: set HEADRACE_URL to file:PATH,"
        " HEADRACE_DATA_DIR to the folder of a local service, or HEADRACE_DYNAMODB_URL to an"
        " endpoint, or for AWS a region (AWS_REGION) and credentials"
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Give the file of a local service in this folder."""
    path = tmp_path / ".headrace" / "headrace.db"
    path.parent.mkdir()
    SqliteStore(str(path)).close()
    return path


@pytest.mark.usefixtures("unknown")
def test_a_file_is_named_by_option_or_variable(file: Path) -> None:
    variable = {"HEADRACE_URL": f"file:{file}"}

    by_option = StoreConnection.of({"url": "file:.headrace/headrace.db"}, {})
    by_variable = StoreConnection.of({}, variable)

    assert by_option == by_variable
    assert by_option.options() == {"url": file.as_uri()}
    assert StoreConnection.of(by_option.options(), {}) == by_option


@pytest.mark.usefixtures("unknown")
def test_the_file_of_a_local_service_is_found_by_itself(file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    url = file.as_uri()

    assert StoreConnection.of({}, {}).url == url
    assert StoreConnection.of({}, {"HEADRACE_URL": "http://127.0.0.1:8080"}).url == url
    assert StoreConnection.of({}, {"AWS_REGION": "eu-west-1"}).url == url
    assert StoreConnection.of({}, {"HEADRACE_DATA_DIR": str(file.parent)}).url == url
    with pytest.raises(InvalidRequest, match="HEADRACE_DATA_DIR must be the data folder"):
        StoreConnection.of({}, {"HEADRACE_DATA_DIR": str(elsewhere)})


@pytest.mark.usefixtures("unknown", "file")
@pytest.mark.parametrize(
    ("given", "env"),
    [
        ({"tasks_table": "t"}, {}),
        ({}, {"HEADRACE_DYNAMODB_URL": "http://127.0.0.1:8000"}),
        ({}, {"HEADRACE_URL": "https://api.example.com"}),
        ({"region": "eu-west-1"}, {"HEADRACE_URL": "file:other.db"}),
    ],
)
def test_who_names_tables_or_another_service_does_not_mean_the_file_here(
    given: dict[str, str], env: dict[str, str]
) -> None:
    assert StoreConnection.of(given, env).url is None


@pytest.fixture
def aws(unknown: pytest.MonkeyPatch) -> Iterator[Account]:
    """Give an account with one stack, in which IAM refuses every call of its tables."""
    unknown.setenv("AWS_ACCESS_KEY_ID", "local")
    unknown.setenv("AWS_SECRET_ACCESS_KEY", "local")
    made_once = (connect._deployed, connect.store, connect.opened)  # noqa: SLF001 (forgotten here)
    with account("http://127.0.0.1:9", TableNames("jobs-1a2b", "control-3c4d")) as made:
        made.policy = []
        unknown.setenv("AWS_ENDPOINT_URL_DYNAMODB", made.url)
        unknown.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", made.url)
        yield made
    for each in made_once:
        each.cache_clear()


@pytest.mark.parametrize(("given", "env"), [({"url": URL}, {}), ({}, {"HEADRACE_URL": URL})])
def test_the_tables_of_a_deployment_are_those_that_its_stack_names(
    aws: Account, given: dict[str, str], env: dict[str, str]
) -> None:
    made = StoreConnection.of(given, env)

    assert made == StoreConnection("jobs-1a2b", "control-3c4d", region=REGION)
    assert StoreConnection.of(given, env) == made
    assert (aws.calls, aws.regions) == ({"DescribeStacks": 1}, {REGION})  # once a process
    assert StoreConnection.of(made.options()) == made  # and an executor does not ask


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "http://127.0.0.1:8080"}, "url must be file:PATH or dynamodb://REGION/STACK, not"),
        ({"url": "file:/tmp/x.db", "tasks_table": "t"}, "tasks_table has no meaning beside"),
    ],
)
def test_what_is_no_place_of_tasks_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        StoreConnection.of(given, {})


def test_a_file_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none.db"

    with pytest.raises(InvalidRequest, match=r"none\.db, which is not there: .* local mode"):
        connect.opened(StoreConnection.of({"url": f"file:{path}"}, {}))

    assert not path.exists()


def test_an_executor_of_another_machine_says_that_a_file_is_for_one(
    connection: StoreConnection,
) -> None:
    elsewhere = dataclasses.replace(connection, machine="elsewhere")

    with pytest.raises(InvalidRequest, match=r"on elsewhere, not on .*local mode"):
        connect.store(elsewhere)


def add(connection: StoreConnection, number: int) -> int:
    """Enqueue tasks in a process of its own, as an executor's worker does."""
    new = [TaskSpec(str(n)) for n in range(number)]
    return len(connect.opened(connection).tasks.enqueue("mail", new))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_several_processes_work_on_one_file_while_their_parent_has_it_open(
    connection: StoreConnection, start: str
) -> None:
    uses = connect.opened(connection)
    uses.queues.create("mail", QueueSettings())
    uses.tasks.enqueue("mail", [TaskSpec("0")])

    with ProcessPoolExecutor(3, mp_context=get_context(start)) as pool:
        added = sum(pool.map(add, [connection] * 6, [20] * 6))
    uses.tasks.enqueue("mail", [TaskSpec("1")])

    assert added == 120
    assert len(uses.inspect.list("mail", limit=250).tasks) == 122
