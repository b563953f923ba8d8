"""An error of AWS about rights or credentials becomes one that says what to mend."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ProfileNotFound

from headrace.domain.errors import Forbidden, HeadraceError, InvalidRequest, Unauthenticated
from headrace.store.dynamo.connect import CallersRights


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
def test_a_refusal_that_the_caller_can_mend_says_so(
    outcome: Any, kind: type[HeadraceError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        CallersRights("the stack shop in eu-west-1").wrap(Client(outcome)).query()
