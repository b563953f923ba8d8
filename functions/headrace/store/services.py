"""AWS's other services: secrets and invocations, and how long any request to AWS may take."""

import json
from collections.abc import Mapping
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from headrace.domain.errors import Unavailable
from headrace.store.base import CALL_SECONDS, seconds_left

_WRONG = frozenset({"AccessDeniedException", "ResourceNotFoundException", "ValidationException"})


def secret(arn: str) -> str:
    """Return the text of the secret at *arn*.

    Raises Unavailable while Secrets Manager does not answer; what only a wrong deployment can cause
    passes through.
    """
    retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    config = Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries=retries)
    try:
        client = Session().create_client("secretsmanager", config=config)
        mind_time(client)
        text: str = client.get_secret_value(SecretId=arn)["SecretString"]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _WRONG:
            raise
        message = f"a secret cannot be read: {code}"
        raise Unavailable(message) from error
    except BotoCoreError as error:
        message = f"a secret cannot be read: {type(error).__name__}"
        raise Unavailable(message) from error
    return text


def invoke(function: str, event: Mapping[str, Any]) -> None:
    """Have Lambda run *function* with *event*, soon; nobody waits for its answer.

    Raises Unavailable when Lambda does not take it, for whatever reason.
    """
    retries = {"mode": "standard", "total_max_attempts": 2}
    config = Config(connect_timeout=1, read_timeout=4, retries=retries)
    try:
        client = Session().create_client("lambda", config=config)
        client.invoke(
            FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode()
        )
    except ClientError as error:
        message = f"{function} cannot be invoked: {error.response['Error']['Code']}"
        raise Unavailable(message) from error
    except BotoCoreError as error:
        message = f"{function} cannot be invoked: {type(error).__name__}"
        raise Unavailable(message) from error


CONNECT_SECONDS: Final = 1.0
READ_SECONDS: Final = CALL_SECONDS - CONNECT_SECONDS
ATTEMPTS: Final = 3  # of botocore's clients

# Between botocore's attempts: two seconds of its own, five more if AWS says so.
_LONGEST_PAUSE: Final = 7.0


def check_time(**_: object) -> None:
    """Raise Unavailable where there is no time left for a request."""
    if seconds_left() < CALL_SECONDS:
        message = "the table, or the lake, is slow: there is no time left to ask it again"
        raise Unavailable(message)


def mind_time(client: Any) -> None:  # noqa: ANN401  botocore makes its clients at run time
    """Let botocore's *client* begin no attempt, nor pause for one, that would come too late."""
    service = client.meta.service_model.service_id.hyphenize()  # as precise as its own handlers
    client.meta.events.register_first(f"before-send.{service}", check_time)
    client.meta.events.register_first(f"needs-retry.{service}", _no_pause_in_vain)


def _no_pause_in_vain(**_: object) -> bool | None:
    return False if seconds_left() < CALL_SECONDS + _LONGEST_PAUSE else None
