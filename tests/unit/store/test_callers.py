"""What AWS refuses to whoever runs a program becomes an error that says what to mend."""

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ProfileNotFound

from headrace.domain.errors import Forbidden, HeadraceError, InvalidRequest, Unauthenticated
from headrace.store.dynamo.callers import CallersRights

RIGHTS = CallersRights("the stack shop in eu-west-1")


class Refusing:
    """A client whose every call ends in the same way."""

    region = "eu-west-1"

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def query(self, **_: object) -> object:
        return self._end()


def refusal(code: str) -> Callable[[], object]:
    def end() -> object:
        raise ClientError({"Error": {"Code": code, "Message": "because"}}, "Query")

    return end


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("AccessDeniedException", Forbidden, "IAM refuses Query on the stack shop in eu-west-1"),
        ("UnrecognizedClientException", Unauthenticated, "does not take these credentials"),
        ("ExpiredTokenException", Unauthenticated, r"\(ExpiredTokenException\): because"),
        ("ResourceNotFoundException", InvalidRequest, "which has no such table: because"),
    ],
)
def test_a_refusal_that_they_can_mend_is_theirs(
    code: str, kind: type[HeadraceError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        RIGHTS.over(Refusing(refusal(code))).query()


@pytest.mark.parametrize("error", [NoCredentialsError(), ProfileNotFound(profile="nobody")])
def test_so_are_credentials_that_are_not_there(error: Exception) -> None:
    def end() -> object:
        raise error

    with pytest.raises(Unauthenticated, match="without credentials"):
        RIGHTS.over(Refusing(end)).query()


def test_one_statement_of_a_batch_is_refused_like_a_call() -> None:
    error = {"Error": {"Code": "AccessDenied", "Message": "no PartiQLInsert"}}
    answer = {"Responses": [{"TableName": "tasks"}, error]}

    with pytest.raises(Forbidden, match="no PartiQLInsert"):
        RIGHTS.over(Refusing(lambda: answer)).query()
