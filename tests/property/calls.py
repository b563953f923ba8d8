"""The calls that the machine makes, their fields drawn from a few that matter."""

from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from tests.property.model import RETRIES, Rules

STATES: Final = ("ENQUEUED", "INFLIGHT", "DEAD", "SUCCEEDED")  # in the order of lists
VERBS: Final = {
    "SUCCEEDED": "succeed",
    "INFLIGHT": "heartbeat",
    "FAILED": "fail",
    "RELEASED": "release",
    "MOVED": "move",
}

queue_names = st.sampled_from(["plain", "bare", "wide"])
any_of_them = st.integers(0, 1_000)
delays = st.sampled_from([None, None, 0, 0.5, 2, 6, 15, 70])
keepalives = st.sampled_from([None, None, 1, 4, 25])


def new_rules() -> dict[str, Rules]:
    """Return the queues: an ordinary one, one that keeps nothing, one of two shards."""
    return {
        "plain": Rules(),
        "bare": Rules(keepalive=12, expires=20, retry="at once", dead_letters=0, history=0),
        "wide": Rules(
            keepalive=8, expires=0, retry="listed", dead_letters=15, history=40, shards=2,
            shards_in_use=2,
        ),
    }  # fmt: skip


@dataclass(frozen=True)
class Ask:
    """One entry of an enqueue call; times are seconds from now."""

    id: str | None
    delay: float | None
    at: float | None
    expires: float | None
    retry: str | None
    keepalive: float | None


asks = st.builds(
    Ask,
    id=st.sampled_from([None, None, None, "order-1", "order-2", "order-3"]),
    delay=delays,
    at=st.sampled_from([None, None, None, -5, 0.5, 9]),
    expires=st.sampled_from([None, None, None, None, -1, 3, 8, 30]),
    retry=st.none() | st.sampled_from(list(RETRIES)),
    keepalive=keepalives,
)


PLAIN: Final = Ask(None, None, None, None, None, None)
OWN: Final = Ask(None, None, None, expires=45, retry="growing", keepalive=7)


@dataclass(frozen=True)
class Say:
    """One report: about which delivery, under which lease, and what."""

    live: bool
    delivery: int
    lease: str
    status: str
    delay: float | None
    keepalive: float | None
    text: str | None
    retryable: bool
    target: str
    elsewhere: bool


says = st.builds(
    Say,
    live=st.sampled_from([True, True, False]),
    delivery=any_of_them,
    lease=st.sampled_from(["held"] * 6 + ["foreign", "forged", "nonsense"]),
    status=st.sampled_from(list(VERBS)),
    delay=delays,
    keepalive=keepalives,
    text=st.sampled_from([None, "1"]),
    retryable=st.sampled_from([True, True, True, False]),
    target=st.sampled_from(["plain", "bare", "wide", "plain", "bare", "wide", "nowhere"]),
    elsewhere=st.sampled_from([False] * 7 + [True]),
)


@dataclass(frozen=True)
class Delivery:
    """What a worker knows of a task it was handed."""

    task_id: str
    queue: str
    lease: str
    token: str  # of this delivery alone, whatever the lease is called
