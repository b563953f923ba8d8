"""Lambda entry point: enqueue the ticks of the next minutes, once a minute."""

from dataclasses import asdict
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.runtime.wiring import current_service, prepare

logger = Logger()
prepare("queues", "ticking", "tick_tasks", "derived_ids")


@logger.inject_lambda_context
def handler(_event: dict[str, Any], _context: LambdaContext) -> dict[str, int]:
    """Process every schedule once; return the numbers."""
    use = current_service()
    # Programs that use the tables themselves may read this secret, but only the service creates it.
    use.derived_ids.secret.value()
    ticked = asdict(use.ticking.run())
    logger.info("ticked", extra=ticked)
    return ticked
