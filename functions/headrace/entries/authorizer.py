"""Lambda authorizer: tell API Gateway whether a key is known, before it calls the API.

It only keeps strangers away: they reach neither the API function nor its concurrency, and their
answer comes from API Gateway's cache.  The API recognises the key once more and decides by itself
what it may do, as it does where no API Gateway stands before it; so nothing that is passed on here
is believed, and a revoked key stops within 10 seconds, not when API Gateway's cache (60) forgets.
"""

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.domain.errors import Unauthenticated
from headrace.http.request import bearer
from headrace.runtime.wiring import current_service, prepare
from headrace.store.call_scope import in_time

logger = Logger()
prepare("keys")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Return a policy for every route, because API Gateway keeps it for all of them."""
    try:
        with in_time(context):
            key = current_service().keys.verify(
                bearer(event.get("authorizationToken")), note_use=False
            )
    except Unauthenticated:
        return _policy(event, "Deny", "nobody", {})
    return _policy(event, "Allow", key.key_id, {"name": key.name, "role": key.role.value})


def _policy(
    event: dict[str, Any], effect: str, who: str, context: dict[str, str]
) -> dict[str, Any]:
    api, stage, *_ = event["methodArn"].split("/")
    statement = {"Action": "execute-api:Invoke", "Effect": effect, "Resource": f"{api}/{stage}/*"}
    return {
        "principalId": who,
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "context": context,  # for access logs
    }
