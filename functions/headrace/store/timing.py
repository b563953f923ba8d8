"""How long requests to AWS may take, and that none begins that nobody can wait for."""

from typing import Any, Final

from headrace.domain.errors import Unavailable
from headrace.store.base import CALL_SECONDS, seconds_left

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
