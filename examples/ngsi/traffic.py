"""The notifications the demo sends: real ones over and over, and now and then a malformed one.

Everything follows from a notification's number, so whoever checks the outcome knows what was sent
without asking the queue. The correlator header tells which task came from which notification.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from examples.ngsi.ngsi import CORRELATOR_TAG, SERVICE_PATH_TAG, SERVICE_TAG, TIME_INDEX_TAG
from examples.ngsi.values import Json

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
