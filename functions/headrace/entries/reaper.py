"""Lambda entry point: end lapsed leases, expire tasks and resume jobs, once a minute.

If one pass a minute is not enough, the timer's call invokes others, each with its part, and one for
actions on many tasks. The start of an action invokes that one immediately.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.domain.errors import Unavailable
from headrace.runtime.function import runs_again
from headrace.runtime.metrics import emit, of_reaper
from headrace.runtime.service import WORK_ON_ACTIONS, Service
from headrace.runtime.wiring import current_service, prepare
from headrace.store.call_scope import in_time
from headrace.store.records.reaper import ReaperPart

LAST_PAGE_SECONDS = 12.0
"""The time of the function that is kept free for the last page."""

logger = Logger()
prepare("reaping", "queues", "jobs", "leases")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, float]:
    """Make one pass over every queue, or over the part in *event*; return its numbers."""
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
    emit(use.settings.metrics, of_reaper(reaped), use.now())
    return reaped


def _passed_over_actions(use: Service, again: Callable[[Mapping[str, Any]], object]) -> bool:
    """Have actions on many tasks processed, if there are any; tell if this is unknown."""
    try:
        if use.actions.any_unfinished():
            again({WORK_ON_ACTIONS: True})
    except Unavailable:  # the next minute's
        return True
    return False


def _act(use: Service, context: LambdaContext) -> dict[str, float]:
    """Process actions until all are done or the time is over; the next minute continues."""

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
