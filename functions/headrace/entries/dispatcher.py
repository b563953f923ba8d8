"""Lambda entry point: send the tasks of one queue to its target, or start what is needed.

The recorder calls it for a queue in which tasks arrived. A timer calls it once a minute without a
queue, for tasks that became due.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from threading import Event, Timer
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.runtime.function import runs_again
from headrace.runtime.metrics import emit, of_dispatcher
from headrace.runtime.pushing import dispatcher_of
from headrace.runtime.wiring import current_service, prepare

_MINUTE_SECONDS: Final = 50.0

logger = Logger()
prepare("queues", "push", "push_targets", "leases", "tokens", "slots", "reports", "signing")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Run the dispatcher of the queue and seat in *event*, or start all that are needed."""
    return _run(context, event)


@contextmanager
def _a_minute(stopping: Event) -> Iterator[None]:
    """Return a block that sets *stopping* before the next minute; the timer waits for that."""
    timer = Timer(_MINUTE_SECONDS, stopping.set)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _run(context: LambdaContext, event: Mapping[str, Any]) -> dict[str, Any]:
    use = current_service()
    with runs_again(use.settings.function, lambda again: _run(context, again)) as again:
        if "queue" not in event:
            due = list(use.push_targets.for_timer())
            started = sum(again({"queue": queue, "seat": number}) for queue, number in due)
            if use.settings.metrics is not None:
                busy = use.push_targets.backing_off(queue for queue, _ in due)
                emit(use.settings.metrics, of_dispatcher(busy), use.now())
            return {"started": started}
        queue, number = str(event["queue"]), int(event.get("seat", 0))
        stopping = Event()
        loop = dispatcher_of(
            use,
            queue,
            number,
            time_left=lambda: context.get_remaining_time_in_millis() / 1000,
            stopping=stopping,
        )
        if loop is None:
            return {"queue": queue, "seat": number, "sent": 0}
        with _a_minute(stopping) if use.settings.function is None else nullcontext():
            sent = {"queue": queue, "seat": number, "sent": loop.run()}
        logger.info("sent", extra=sent)
        if use.settings.function is not None and use.push.seconds_to_work(queue) == 0:
            again({"queue": queue, "seat": number})  # out of time, not of tasks
    return sent
