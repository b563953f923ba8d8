"""Functions of this deployment, invoked by one another."""

import json
from collections.abc import Mapping
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from headrace.domain.errors import Unavailable


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
