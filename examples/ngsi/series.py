"""The notifications for the stations on Spark: the same ones, as a day of observations.

The real notifications carry the times of years ago, or none.  Here each is observed a minute after
the one before, the last of them now, and tells its time in the way that suits it.  Some come two
days late, some twice, and every two neighbours in the wrong order.
"""

import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from examples.ngsi.ngsi import CORRELATOR_TAG, TIME_INDEX_TAG
from examples.ngsi.time_index import attributes_of
from examples.ngsi.traffic import (
    MALFORMED_EVERY,
    Body,
    Notification,
    entities_of,
    notifications,
)
from examples.ngsi.values import instant_text

STEP = timedelta(minutes=1)
LATE_BY = timedelta(days=2)
BACK = 2
"""A repeated notification is that many places after the first."""

_LATE, _TWICE = 15, 5
"""Which of every twenty: the tenth is malformed."""


@dataclass(frozen=True, slots=True)
class Series:
    """What is sent, and how many of it come late and how many for the second time."""

    sent: list[Notification]
    late: int
    repeated: int


def series(number: int, end: datetime) -> Series:
    """The first *number* notifications, observed up to *end*; always the same ones."""
    sent: list[Notification] = []
    late = repeated = 0
    for place, notification in enumerate(notifications(number)):
        kind = place % MALFORMED_EVERY
        if notification.error is not None:
            sent.append(notification)
        elif kind == _TWICE:
            again = {**sent[-BACK].headers, CORRELATOR_TAG: notification.correlator}
            sent.append(replace(sent[-BACK], headers=again))
            repeated += 1
        else:
            at = end - STEP * (number - (place ^ 1)) - LATE_BY * (kind == _LATE)
            late += kind == _LATE
            sent.append(_observed(notification, at))
    return Series(sent, late, repeated)


def _observed(notification: Notification, at: datetime) -> Notification:
    """The same with another time: where its header points, or as its kind of NGSI has it."""
    body: Body = copy.deepcopy(notification.body)
    text = instant_text(at)
    named = notification.headers.get(TIME_INDEX_TAG, "")
    for entity in entities_of(body):
        if named:
            entity[named] = {"type": "DateTime", "value": text}
            continue
        for _, attribute in attributes_of(entity):
            if "@context" in entity:
                attribute["observedAt"] = text
            else:
                known = attribute.get("metadata")
                metadata = known if isinstance(known, dict) else {}
                metadata["TimeInstant"] = {"type": "DateTime", "value": text}
                attribute["metadata"] = metadata
    return replace(notification, body=body)
