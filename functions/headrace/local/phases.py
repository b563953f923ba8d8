"""What a connection to the local service waits for, and how long."""

import math
from enum import Enum
from typing import Final


class Phase(Enum):
    """What a connection waits for."""

    IDLE = "the first byte of a request"
    HEAD = "the rest of its headers"
    BODY = "the rest of its body"
    ANSWER = "the answer"
    TAKEN = "the client, to take the answer"
    LEAVING = "the client, to read a refusal and hang up"


# A worker of ours keeps its connection while it is idle; a handler has its own bounds.
SECONDS: Final = {
    Phase.IDLE: 60.0,
    Phase.HEAD: 5.0,
    Phase.BODY: 60.0,
    Phase.ANSWER: math.inf,
    Phase.TAKEN: 60.0,
    Phase.LEAVING: 2.0,
}
