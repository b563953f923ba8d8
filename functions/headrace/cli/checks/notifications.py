"""The adapters for NGSI: the door for context brokers, and QuantumLeap's management API.

They know one queue, which in a deployment at work is somebody's: it is left alone there unless
that was asked for, and then only notifications with a FIWARE service of our own are looked at.
"""

from functools import partial
from typing import Any, Final

import msgspec

from headrace.cli.checks.made import NOTIFICATIONS, SERVICE, Notifications, SharedQueue, Thing
from headrace.cli.checks.run import LeftOut, Smoke, expect
from headrace.cli.checks.wire import Wrong
from headrace.client.calls import queues
from headrace.domain.errors import Forbidden, NotFound, QueueExists

QUEUE: Final = "ngsi.notify"
_IN_USE: Final = f"{QUEUE} is in use here; --ngsi checks it all the same"
_DATA: Final = '[{"id":"Room1","type":"Room","temperature":{"type":"Number","value":23.50}}]'


def notify(smoke: Smoke) -> str:
    """Send a notification, into a queue made for it."""
    ours = _make_queue(smoke)
    smoke.made.begin(Notifications(smoke.name))
    body = f'{{"subscriptionId":"{smoke.name}","data":{_DATA}}}'.encode()
    _ask(smoke, "POST", "/v2/notify", body)
    smoke.kept["notified"] = "ours" if ours else "theirs"
    return f"taken into {QUEUE}{'' if ours else ', which is in use'}"


def _make_queue(smoke: Smoke) -> bool:
    """Make the queue if it is not there; tell whether we did.  Raises LeftOut if it is."""
    try:
        smoke.send(queues.get_queue(QUEUE))
    except NotFound:
        mark = f"of {smoke.name}, a smoke test; may be deleted"
        thing = smoke.made.begin(SharedQueue(QUEUE, description=mark))
        try:
            smoke.send(queues.create_queue(QUEUE, description=mark))
        except QueueExists:
            smoke.made.gone(thing)
        else:
            thing.sure = True
            return True
    except Forbidden:
        message = f"the key is not for {QUEUE}"
        raise LeftOut(message) from None
    if not smoke.ngsi:
        raise LeftOut(_IN_USE)
    return False


def listed(smoke: Smoke) -> str:
    """List it with its data."""
    return _found(smoke, NOTIFICATIONS, _with_data)


def _with_data(smoke: Smoke, one: dict[str, Any]) -> None:
    given = one.get("input", {})
    expect(given.get("fiware_service"), smoke.name, "its service")
    if _DATA.encode() not in smoke.wire.last.body:
        message = "its data is not as it was sent"
        raise Wrong(message)


def summary(smoke: Smoke) -> str:
    """List how it is with it."""
    return _found(smoke, f"{NOTIFICATIONS}/summary", _with_status)


def _with_status(_smoke: Smoke, one: dict[str, Any]) -> None:
    if one.get("status") not in ("pending", "succeeded", "failed"):
        message = f"its status is {one.get('status')!r}"
        raise Wrong(message)


def _found(smoke: Smoke, path: str, check: Any) -> str:  # noqa: ANN401 (one of the two above)
    theirs = smoke.need("notified", "NGSI: notify") == "theirs"

    def look() -> list[dict[str, Any]] | None:
        body = _ask(smoke, "GET", path)
        found = msgspec.json.decode(body, type=list[dict[str, Any]])
        return found if found or theirs else None

    found = smoke.indexed(look, "notification of ours")
    if theirs and not found:
        return "none any more: a worker has moved it on"
    expect(len(found), 1, "the number of notifications of ours")
    check(smoke, found[0])
    return "the one of ours"


def count(smoke: Smoke) -> str:
    """Count it."""
    theirs = smoke.need("notified", "NGSI: notify") == "theirs"

    def look() -> int | None:
        number = msgspec.json.decode(_ask(smoke, "GET", f"{NOTIFICATIONS}/count"), type=int)
        return number if number == 1 or (theirs and number == 0) else None

    return f"{smoke.indexed(look, 'count of 1')}"


def delete(smoke: Smoke) -> str:
    """Delete it, and then the queue, if that is ours and nobody else has put something in."""
    smoke.need("notified", "NGSI: notify")
    things = [one for one in smoke.made.things if isinstance(one, Notifications | SharedQueue)]
    for thing in things:
        smoke.indexed(partial(_gone, smoke, thing), f"end of {thing.text}")
        smoke.made.gone(thing)
    return f"gone{', and the queue' if len(things) > 1 else ''}"


def _gone(smoke: Smoke, thing: Thing) -> bool | None:
    return thing.remove(smoke.wire) or None


def _ask(smoke: Smoke, method: str, path: str, body: bytes | None = None) -> bytes:
    seen = smoke.wire.ask(method, path, body=body, headers={SERVICE: smoke.name})
    smoke.wire.accepted(seen)
    return seen.body
