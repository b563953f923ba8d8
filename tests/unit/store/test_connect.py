"""Where DynamoDB is, known without botocore's client, and the same as that client would say."""

import os

import pytest
from botocore.session import Session

from headrace.store.dynamo.connect import late_client


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")


def made(client: object) -> bool:
    """Whether botocore's client has been made."""
    return "_WhenAsked" not in type(client).__name__ or "_client" in vars(client)


@pytest.mark.parametrize("region", ["eu-west-1", "us-east-1", "ap-southeast-7", "mx-central-1"])
def test_amazons_address_is_botocores_and_no_client_is_made_for_it(
    monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    client = late_client(Session(), None)

    assert not made(client)
    theirs = Session().create_client("dynamodb").meta
    assert (client.meta.endpoint_url, client.meta.region_name) == (
        theirs.endpoint_url,
        theirs.region_name,
    )
    assert client.put_item.__name__ == "put_item"
    assert made(client)


def test_a_service_of_ones_own_is_where_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    client = late_client(Session(), "http://127.0.0.1:8000")

    assert not made(client)
    assert client.meta.endpoint_url == "http://127.0.0.1:8000"
    assert client.describe_table.__self__.meta.endpoint_url == "http://127.0.0.1:8000"
