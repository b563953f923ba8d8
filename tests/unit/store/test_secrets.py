"""Secrets that the environment only names: read once, from where a value is not given itself."""

import re

import pytest
from botocore.session import Session
from moto import mock_aws

from headrace.domain.errors import Unavailable
from headrace.runtime.settings import Settings
from headrace.store.services import secret

ARNS = {"HEADRACE_ADMIN_KEY_ARN": "arn:key", "HEADRACE_SESSION_SECRET_ARN": "arn:session"}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_what_is_only_named_is_read() -> None:
    settings = Settings.from_env(ARNS).with_secrets(lambda arn: f"text of {arn}")

    assert settings.admin_key == "text of arn:key"
    assert settings.session_secret == "text of arn:session"


def test_a_secret_is_read_from_secrets_manager() -> None:
    with mock_aws():
        client = Session().create_client("secretsmanager", region_name="us-east-1")
        arn = client.create_secret(Name="key", SecretString="it is this")["ARN"]

        assert secret(arn) == "it is this"


def test_a_secrets_manager_that_is_away_makes_the_service_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:1")

    told = (
        "a secret cannot be read: EndpointConnectionError: nothing answers at http://127.0.0.1:1/;"
        " check whether it is started, and HEADRACE_DYNAMODB_URL or AWS_ENDPOINT_URL its address"
    )
    with pytest.raises(Unavailable, match=re.escape(told)):
        secret("arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef")
