"""Where the tables are: what is said when nothing tells."""

import os
from pathlib import Path

import pytest

from headrace.domain.errors import InvalidRequest
from headrace.spark.sources import connect
from headrace.spark.sources.connect import StoreConnection


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
        "no local service runs here, and no region is known: set HEADRACE_DATA_DIR to the folder of"
        " a local service that runs elsewhere, or HEADRACE_DYNAMODB_URL to an endpoint, or for AWS"
        " a region (AWS_REGION) and credentials"
    )


def test_without_credentials_it_says_so_at_once(unknown: pytest.MonkeyPatch) -> None:
    unknown.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    connection = StoreConnection.of({"tasks_table": "unfound"})

    with pytest.raises(InvalidRequest, match="there are no credentials for the tables: set HEADR"):
        connect.opened(connection).queues.get("mail")
