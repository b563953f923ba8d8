"""A secret of which the environment has only the name is read from Secrets Manager."""

import pytest
from botocore.session import Session
from moto import mock_aws

from headrace.domain.errors import Unavailable
from headrace.store.services import secret


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_a_secret_is_read_from_secrets_manager() -> None:
    with mock_aws():
        client = Session().create_client("secretsmanager", region_name="us-east-1")
        arn = client.create_secret(Name="key", SecretString="it is this")["ARN"]

        assert secret(arn) == "it is this"


def test_a_secrets_manager_that_is_away_makes_the_service_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:1")

    with pytest.raises(
        Unavailable, match=r"cannot be read: EndpointConnectionError.*127\.0\.0\.1:1/"
    ):
        secret("arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef")
