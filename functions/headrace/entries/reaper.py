"""Lambda entry point: end lapsed leases, expire tasks, resume jobs, once a minute.

Where that takes more than one pass a minute, the timer's invokes others, each with its part; and
one for actions on many tasks, if any is under way.  Whoever begins an action invokes that at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.domain.errors import Unavailable
from headrace.runtime import telemetry
from headrace.runtime.function import runs_again
from headrace.runtime.service import WORK_ON_ACTIONS, Service
from headrace.runtime.wiring import current_service, prepare
from headrace.store.call_scope import in_time
from headrace.store.records.reaper import ReaperPart

LAST_PAGE_SECONDS = 12.0
"""Kept of the function's time for the page under way when the rest is over."""

logger = Logger()
prepare("reaping", "queues", "jobs", "leases")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, float]:
    """Make one pass over every queue, or over the part that *event* names; say what it did."""
    return _pass(context, event)


def _pass(context: LambdaContext, event: Mapping[str, Any]) -> dict[str, float]:
    use = current_service()
    if event.get(WORK_ON_ACTIONS):
        return _act(use, context)
    part = ReaperPart.of(event)

    def time_left() -> float:
        return context.get_remaining_time_in_millis() / 1000 - LAST_PAGE_SECONDS

    run = partial(_pass, context)
    with runs_again(use.settings.function, run) as again, in_time(context):
        missed = part is None and _passed_over_actions(use, again)
        hand_on = again if part is None else None
        reaped = asdict(use.reaping.run(part, time_left=time_left, hand_on=hand_on))
        reaped["throttled"] = reaped["throttled"] or missed
        if part is None and not reaped["throttled"]:
            try:
                use.counters.post_left()
            except Unavailable:  # the next minute's
                reaped["throttled"] = True
    logger.info("reaped", extra=reaped)
    telemetry.emit(use.settings.metrics, telemetry.of_reaper(reaped), use.now())
    return reaped


def _passed_over_actions(use: Service, again: Callable[[Mapping[str, Any]], object]) -> bool:
    """Have actions on many tasks worked on, if there are any; tell if that cannot be known now."""
    try:
        if use.actions.any_unfinished():
            again({WORK_ON_ACTIONS: True})
    except Unavailable:  # the next minute's
        return True
    return False


def _act(use: Service, context: LambdaContext) -> dict[str, float]:
    """Work on actions until none is left, or time is over: then the next minute's goes on."""

    def time_left() -> float:
        return context.get_remaining_time_in_millis() / 1000 - LAST_PAGE_SECONDS

    worked: dict[str, float] = {"acted_on": 0, "throttled": False}
    with in_time(context):
        try:
            worked["acted_on"] = use.action_work.run(time_left=time_left)
        except Unavailable:  # the next minute's
            worked["throttled"] = True
    logger.info("acted", extra=worked)
    return worked
