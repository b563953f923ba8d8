"""A secret of which the environment has only the name is read from Secrets Manager."""

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from botocore.session import Session
from moto import mock_aws

from headrace.domain.errors import Unavailable
from headrace.store.services import no_answer, secret

pytestmark = pytest.mark.usefixtures("aws_credentials")


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


def test_a_secret_that_does_not_exist_is_no_outage() -> None:
    with mock_aws(), pytest.raises(ClientError, match="ResourceNotFoundException"):
        secret("arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef")


def test_an_address_of_aws_that_nothing_answers_at_asks_to_check_the_region() -> None:
    url = "https://lambda.mars-1.amazonaws.com/"

    assert "check the network, and the region" in no_answer(
        EndpointConnectionError(endpoint_url=url)
    )
    assert no_answer(NoCredentialsError()) == "NoCredentialsError"
