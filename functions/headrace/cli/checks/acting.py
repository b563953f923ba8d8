"""Checks of actions on many tasks that the service carries out."""

from headrace.cli.checks.run import Smoke, expect
from headrace.client.calls import ApiCall, actions
from headrace.domain.errors import Finished
from headrace.wire.actions import ActionSeen

_NOBODY = "a worker of nobody, for the smoke test"


def begin(smoke: Smoke) -> str:
    """Begin an action that finds no task."""
    where = {"worker": _NOBODY}
    begun = smoke.send(actions.begin_action("run", [smoke.other], where, reason="smoke test"))
    expect(smoke.wire.last.status, 202, "the status")
    expect((begun.action, begun.queues), ("run", [smoke.other]), "the action")
    smoke.kept["action"] = begun.id
    return begun.id


def turn(smoke: Smoke) -> str:
    """Pause it, let it go on, and cancel it, if it is not over by then."""
    name = smoke.need("action", "action: begin")
    told = [
        _turned(smoke, call(name))
        for call in (actions.pause_action, actions.resume_action, actions.cancel_action)
    ]
    return ", ".join(told).lower()


def show(smoke: Smoke) -> str:
    """Find it by its id and in the list of its queue."""
    name = smoke.need("action", "action: begin")
    found = smoke.send(actions.get_action(name))
    expect((found.reason, found.changed), ("smoke test", 0), "the action")
    listed = smoke.send(actions.list_actions(queue=smoke.other).at(None)).entries
    expect(name in [one.id for one in listed], right=True, what="the list")
    return found.status


def _turned(smoke: Smoke, call: ApiCall[ActionSeen]) -> str:
    try:
        return smoke.send(call).status
    except Finished:
        return "over"
