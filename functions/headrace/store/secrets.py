"""What Secrets Manager keeps for a deployment: its first admin key, what signs its sessions."""

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from headrace.domain.errors import Unavailable
from headrace.store.timing import ATTEMPTS, CONNECT_SECONDS, READ_SECONDS, mind_time

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
