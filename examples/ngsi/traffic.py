"""The notifications the demo sends: real ones over and over, and now and then a malformed one.

Everything follows from a notification's number, so whoever checks the outcome knows what was sent
without asking the queue. The correlator header tells which task came from which notification.

The stations on Spark get the same ones as a day of observations: the real notifications carry the
times of years ago, or none. Here each is observed a minute after the one before, the last of them
now, and tells its time in the way that suits it. Some come two days late, some twice, and every two
neighbours in the wrong order.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

from examples.ngsi.ngsi import CORRELATOR_TAG, SERVICE_PATH_TAG, SERVICE_TAG, TIME_INDEX_TAG
from examples.ngsi.values import Json, attributes_of, instant_text

FOLDER = Path(__file__).with_name("notifications")
MALFORMED_EVERY = 20
"""One notification in so many is malformed; each kind has its turn."""
SERVICES = ("smartcity", "openiot")

# Headers that go with some of the files: a path for each of three entities, a time of its own.
_HEADERS = {
    "04_three_rooms_different_attrs": {SERVICE_PATH_TAG: "/rooms/1, /rooms/2, /rooms/3"},
    "05_air_quality_observed_cdmx": {SERVICE_PATH_TAG: "/air", TIME_INDEX_TAG: "dateObserved"},
    "06_ngsi_ld_streetlight": {SERVICE_PATH_TAG: "/lights"},
}
_TO_SPOIL = "01_openapi_notification_two_rooms"

Entities = list[dict[str, Json]]
Body = dict[str, Json]
STEP = timedelta(minutes=1)
LATE_BY = timedelta(days=2)
BACK = 2
"""A repeated notification is that many places after the first."""

_LATE, _TWICE = 15, 5
"""Which of every twenty: the tenth is malformed."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification as it is sent, and the error it must end with, if it is malformed."""

    body: dict[str, Json]
    headers: Mapping[str, str]
    error: str | None

    @property
    def correlator(self) -> str:
        """The name under which its task is found again."""
        return self.headers[CORRELATOR_TAG]

    def body_bytes(self) -> bytes:
        """The body as JSON in UTF-8."""
        return json.dumps(self.body, ensure_ascii=False).encode()


def notifications(number: int) -> list[Notification]:
    """The first ``number`` notifications of the demo, always the same ones."""
    bodies: dict[str, Body] = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(FOLDER.glob("*.json"))
    }
    names = list(bodies)
    sent = []
    for place in range(number):
        headers = {
            CORRELATOR_TAG: f"demo-{place:06d}",
            SERVICE_TAG: SERVICES[place % len(SERVICES)],
        }
        turn, rest = divmod(place, MALFORMED_EVERY)
        if rest == MALFORMED_EVERY // 2:
            spoil, error = _SPOILERS[turn % len(_SPOILERS)]
            body = copy.deepcopy(bodies[_TO_SPOIL])
            spoil(body, headers)
            sent.append(Notification(body, headers, error))
        else:
            name = names[place % len(names)]
            sent.append(Notification(bodies[name], headers | _HEADERS.get(name, {}), None))
    return sent


def entities_of(body: Body) -> Entities:
    # One of our own files, whose data is known to be a list of objects.
    return cast("Entities", body["data"])


def _no_data(body: Body, _headers: dict[str, str]) -> None:
    del body["data"]


def _data_is_one_entity(body: Body, _headers: dict[str, str]) -> None:
    body["data"] = entities_of(body)[0]


def _no_id(body: Body, _headers: dict[str, str]) -> None:
    del entities_of(body)[0]["id"]


def _second_has_no_type(body: Body, _headers: dict[str, str]) -> None:
    del entities_of(body)[1]["type"]


def _id_is_a_number(body: Body, _headers: dict[str, str]) -> None:
    entities_of(body)[0]["id"] = 4567


def _three_paths_for_two(_body: Body, headers: dict[str, str]) -> None:
    headers[SERVICE_PATH_TAG] = "/rooms/1, /rooms/2, /rooms/3"


_MISMATCH = (
    "3 service paths for 2 entities - fiware-servicepath: "
    "several are allowed only if their number is that of the entities"
)
_SPOILERS: tuple[tuple[Callable[[Body, dict[str, str]], None], str], ...] = (
    (_no_id, "'id' is a required property - 'data.0'"),
    (_second_has_no_type, "'type' is a required property - 'data.1'"),
    (_no_data, "'data' is a required property"),
    (_data_is_one_entity, "{…} is not of type 'array' - 'data'"),
    (_id_is_a_number, "4567 is not of type 'string' - 'data.0.id'"),
    (
        _three_paths_for_two,
        _MISMATCH,
    ),
)


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
