"""Fixtures for everything: template.yaml, and with ``--engine dynamodb`` tables made from it.

Only what is about DynamoDB itself is tested on tables, by `make test-dynamodb`, on AWS's own
DynamoDB Local.  All else needs Python alone; a line at the end tells what that leaves out.
"""

import gc
import json
import signal
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from botocore import UNSIGNED
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.session import Session

from headrace.local.tables import DynamoDBClient, TableNames, create_tables, table_requests
from headrace.store.dynamo.raw_client import RawClient
from infra.template import Template, load_template
from tests.engine import AUTHORIZATION, REGION, dynamodb_local

_ON_TABLES: Final = ("tests/contract/", "tests/simulation/")
"""Where tests may want tables besides tests/dynamodb: `make test-dynamodb` runs these too."""
_FEW: Final = 25  # items: as many as one request removes
_OBJECTS: Final = 50_000
"""So many more objects than before, some megabytes, are worth a look for garbage."""
_LEFT_OUT: Final = pytest.StashKey[int]()
_QUARANTINE: Final = Path(__file__).with_name("quarantine.txt")
_TIMEOUT_SECONDS: Final = 120
_SLOW_TIMEOUT_SECONDS: Final = 900
_SLOW_FOLDERS: Final = ("browser", "dynamodb", "e2e", "generators", "peers", "pipeline", "wheel")
"""Tests here start a browser, a deployment, services or Spark."""


# pytest keeps the tests it has rewritten as Python does, and to rewrite them takes twice as long as
# to collect them.  Images that build others turn that off.
sys.dont_write_bytecode = False

# Started in the background by a shell, it would be ignored here and in the commands under test.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tables be had."""
    parser.addoption(
        "--engine",
        choices=("none", "sqlite", "dynamodb"),
        default="none",
        help="what tables are on: AWS's own DynamoDB Local; or none leaves out what needs them,"
        " and sqlite the contract in memory too",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among ten thousand tests: they stay, and each look goes through all.

    Later, look for it seldom: at each 700 objects, as Python does by itself, takes a seventh of all
    time that tests take, and finds next to none.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_OBJECTS)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its timeout; without an engine, leave out what needs one."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            is_slow = item.get_closest_marker("slow") or item.path.parent.name in _SLOW_FOLDERS
            seconds = _SLOW_TIMEOUT_SECONDS if is_slow else _TIMEOUT_SECONDS
            item.add_marker(pytest.mark.timeout(seconds))
    if config.getoption("--engine") == "dynamodb":
        _leave_out([item for item in items if item.get_closest_marker("in_process")], config, items)
        return
    wanting = [
        item
        for item in items
        if "dynamodb_url" in getattr(item, "fixturenames", ())
        and item.nodeid.startswith(_ON_TABLES)
    ]
    config.stash[_LEFT_OUT] = len(wanting)
    if hasattr(config, "workeroutput"):  # of pytest-xdist
        config.workeroutput["left_out"] = len(wanting)
    _leave_out(wanting, config, items)


def _leave_out(
    unwanted: list[pytest.Item], config: pytest.Config, items: list[pytest.Item]
) -> None:
    config.hook.pytest_deselected(items=unwanted)
    left_out = set(unwanted)
    items[:] = [item for item in items if item not in left_out]


def _quarantined() -> dict[str, str]:
    """Return date and reason of each test on the quarantine list, by its id."""
    lines = _QUARANTINE.read_text().splitlines()
    entries = [line.split(maxsplit=2) for line in lines if line and not line.startswith("#")]
    return {test_id: f"{date} {reason}" for date, test_id, reason in entries}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over from a process of pytest-xdist how many tests it left out: each sees all."""
    left_out = getattr(node, "workeroutput", {}).get("left_out", 0)
    node.config.stash[_LEFT_OUT] = max(left_out, node.config.stash.get(_LEFT_OUT, 0))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the quarantine list, and how many tests were left out."""
    for test_id, reason in _quarantined().items():
        terminalreporter.write_line(f"quarantined: {test_id} ({reason})")
    if left_out := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.write_line(
            f"left out {left_out} tests that need DynamoDB's tables, and the contract on them:"
            " `make test-dynamodb` runs these (Java 17 and Node.js 18, or newer)"
        )


@pytest.fixture(scope="session")
def template() -> Template:
    """Give the deployed service's own template."""
    return load_template()


@pytest.fixture(scope="session")
def dynamodb_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the address of DynamoDB Local, one per test process, its data in memory."""
    if request.config.getoption("--engine") != "dynamodb":
        pytest.fail("what needs tables belongs in tests/dynamodb, run with --engine dynamodb")
    with dynamodb_local() as running:
        yield running.url


@pytest.fixture(scope="session")
def dynamodb(dynamodb_url: str) -> DynamoDBClient:
    """Give a client of DynamoDB Local; it may be shared by threads."""
    config = Config(
        max_pool_connections=32,  # as many as the race tests have threads
        retries={"total_max_attempts": 1},  # a repeat would hide what went wrong
        # Saves work for each call: the engine ignores signatures, and checks requests itself.
        signature_version=UNSIGNED,
        user_agent="tests",
        parameter_validation=False,
    )
    client = Session().create_client(
        "dynamodb", endpoint_url=dynamodb_url, region_name=REGION, config=config
    )
    client.meta.events.register(
        "before-call.dynamodb",
        lambda params, **_: params["headers"].update(Authorization=AUTHORIZATION),
    )
    return client


class _Believed(RawClient):
    """The client that the service is wired with; DynamoDB Local looks at no signature."""

    def sign(self, request: AWSRequest, credentials: Credentials) -> None:
        request.headers["Authorization"] = AUTHORIZATION


@pytest.fixture(scope="session")
def raw_dynamodb(dynamodb: DynamoDBClient) -> RawClient:
    """Give the client that the service is wired with; it may be shared by threads."""
    return _Believed(dynamodb, Credentials("local", "local"))


@pytest.fixture(scope="session")
def new_tables(dynamodb: DynamoDBClient) -> Callable[[], TableNames]:
    """Give a function that creates empty tables under names nobody else uses."""
    requests = table_requests()
    # DynamoDB Local removes by the real clock what a test keeps by its own, and each of its
    # writes looks through the streams of all tables there ever were.
    for request in requests.values():
        request.pop("ttl", None)
        request["create"].pop("StreamSpecification", None)

    def create() -> TableNames:
        unique = uuid.uuid4().hex[:12]
        names = TableNames(tasks=f"tasks-{unique}", control=f"control-{unique}")
        create_tables(dynamodb, requests, names)
        return names

    return create


@pytest.fixture(scope="session")
def spare_tables(dynamodb: DynamoDBClient) -> Iterator[list[TableNames]]:
    """Give the tables that are empty again: to make new ones takes longer than most tests."""
    spare: list[TableNames] = []
    yield spare
    for names in spare:
        drop_tables(dynamodb, names)


@pytest.fixture
def tables(
    new_tables: Callable[[], TableNames],
    spare_tables: list[TableNames],
    dynamodb: DynamoDBClient,
    raw_dynamodb: RawClient,
) -> Iterator[TableNames]:
    """Give empty tables to one test."""
    names = spare_tables.pop() if spare_tables else new_tables()
    yield names
    if _emptied(raw_dynamodb, names):
        spare_tables.append(names)
    else:
        drop_tables(dynamodb, names)


@pytest.fixture(scope="module")
def module_tables(
    new_tables: Callable[[], TableNames], dynamodb: DynamoDBClient
) -> Iterator[TableNames]:
    """Give tables that the tests of one module share."""
    names = new_tables()
    yield names
    drop_tables(dynamodb, names)


def drop_tables(dynamodb: DynamoDBClient, names: TableNames) -> None:
    """Remove tables: DynamoDB Local takes the longer for each call the more there are."""
    for name in (names.tasks, names.control):
        dynamodb.delete_table(TableName=name)


def _emptied(dynamodb: RawClient, names: TableNames) -> bool:
    """Remove all items of both tables, if they are few; tell whether they are empty now."""
    found: dict[str, list[dict[str, object]]] = {}
    for name, key in ((names.tasks, "task_id"), (names.control, "pk, sk")):
        wanted = {"ConsistentRead": True, "Limit": _FEW + 1, "ProjectionExpression": key}
        page = json.loads(dynamodb.page("Scan", {"TableName": name, **wanted}))
        if len(page["Items"]) > _FEW or "LastEvaluatedKey" in page:  # a page ends after a megabyte
            return False
        if page["Items"]:
            found[name] = [{"DeleteRequest": {"Key": item}} for item in page["Items"]]
    together = sum(map(len, found.values())) <= _FEW
    for requests in [found] if together else [{name: some} for name, some in found.items()]:
        if requests and dynamodb.batch_write_item(RequestItems=requests)["UnprocessedItems"]:
            return False
    return True


@pytest.fixture
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials and a region that no account has."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
