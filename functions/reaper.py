"""Lambda entry point: take back lapsed leases, bury the expired, finish purges, once a minute."""

from dataclasses import asdict
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.runtime import telemetry
from headrace.runtime.wiring import prepare, use_cases

logger = Logger()
prepare("reaping")


@logger.inject_lambda_context
def handler(_event: dict[str, Any], _context: LambdaContext) -> dict[str, float]:
    """Make one pass over every queue and say what it did."""
    use = use_cases()
    reaped = asdict(use.reaping.run())
    logger.info("reaped", extra=reaped)
    telemetry.tell(use.settings.metrics, telemetry.of_reaper(reaped), use.now())
    return reaped
