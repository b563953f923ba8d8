"""Errors of AWS say how to fix rights, credentials, secrets and regions."""

from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ProfileNotFound,
)
from botocore.session import Session
from moto import mock_aws

from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    InvalidRequest,
    Unauthenticated,
    Unavailable,
)
from headrace.store.dynamo.connect import CallersRights
from headrace.store.services import no_answer, secret


class Client:
    """A client whose every query has the same outcome."""

    region = "eu-west-1"

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def query(self) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "because"}}, "Query")


OF_A_BATCH = {
    "Responses": [
        {"TableName": "tasks"},
        {"Error": {"Code": "AccessDenied", "Message": "no PartiQLInsert"}},
    ]
}


@pytest.mark.parametrize(
    ("outcome", "kind", "message"),
    [
        (refusal("AccessDeniedException"), Forbidden, "IAM refuses Query on the stack shop"),
        (OF_A_BATCH, Forbidden, "no PartiQLInsert"),
        (refusal("UnrecognizedClientException"), Unauthenticated, "not take these credentials"),
        (refusal("ExpiredTokenException"), Unauthenticated, r"\(ExpiredTokenException\): because"),
        (refusal("ResourceNotFoundException"), InvalidRequest, "has no such table: because"),
        (NoCredentialsError(), Unauthenticated, "without credentials"),
        (ProfileNotFound(profile="nobody"), Unauthenticated, "without credentials"),
    ],
)
def test_an_error_of_aws_says_how_the_caller_can_fix_it(
    outcome: Any, kind: type[HeadraceError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        CallersRights("the stack shop in eu-west-1").wrap(Client(outcome)).query()


# -- secrets in Secrets Manager --------------------------------------------------------------------

pytestmark = pytest.mark.usefixtures("aws_credentials")


def test_a_secret_is_read_from_secrets_manager() -> None:
    with mock_aws():
        client = Session().create_client("secretsmanager", region_name="us-east-1")
        arn = client.create_secret(Name="key", SecretString="it is this")["ARN"]

        assert secret(arn) == "it is this"


def test_an_unreachable_secrets_manager_makes_the_service_unavailable(
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


def test_an_unknown_address_of_aws_asks_to_check_the_region() -> None:
    url = "https://lambda.mars-1.amazonaws.com/"

    assert "check the network, and the region" in no_answer(
        EndpointConnectionError(endpoint_url=url)
    )
    assert no_answer(NoCredentialsError()) == "NoCredentialsError"
