"""Lambda entry point: count the stream of the tasks table, batch after batch.

The mapping has a tumbling window, because only then does Lambda name the shard of a batch.
"""

from contextlib import suppress
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.domain.errors import Unavailable
from headrace.runtime.metrics import emit, of_recorder
from headrace.runtime.wiring import current_service, prepare
from headrace.store.dynamo.stream import writes_of
from headrace.store.services import invoke

logger = Logger()
prepare("recording", "counters", "end_webhooks", "matching", "task_batches")


@logger.inject_lambda_context
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Count a batch; return the first record that must come again, if there is one."""
    shard = event.get("shardId") or event.get("eventSourceARN") or "only"
    use = current_service()
    writes, unreadable = writes_of(event["Records"])
    recorded = use.recording.record(shard, writes)
    for reason in (*unreadable, *recorded.unreadable):
        logger.error("left out a record", extra={"shard": shard, "reason": reason})
    failed = [] if recorded.failed_at is None else [{"itemIdentifier": str(recorded.failed_at)}]
    logger.debug("recorded", extra={"shard": shard, "counted": recorded.counted})
    if use.settings.dispatcher is not None:
        for queue, seat in use.push_targets.for_arrivals(recorded.arrived):
            with suppress(Unavailable):  # then the timer does it
                invoke(use.settings.dispatcher, {"queue": queue, "seat": seat})
    emit(use.settings.metrics, of_recorder(recorded.events), use.now())
    return {"batchItemFailures": failed, "state": {}}
