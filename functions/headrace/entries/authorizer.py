"""Lambda authorizer: tell API Gateway whether a key is known, before it calls the API.

It only keeps requests without a valid key away from the API function and its concurrency; API
Gateway answers them from its cache. The API verifies the key again and checks its rights itself, so
it trusts nothing that is passed on here. A revoked key stops within 10 seconds, although API
Gateway caches for 60.
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
    """Return a policy for every route, because API Gateway caches it for all routes."""
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
