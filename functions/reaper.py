"""Lambda entry point: take back lapsed leases, bury the expired, finish purges, once a minute."""

from dataclasses import asdict
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.runtime.wiring import use_cases

logger = Logger()


@logger.inject_lambda_context
def handler(_event: dict[str, Any], _context: LambdaContext) -> dict[str, int]:
    """Make one pass over every queue and say what it did."""
    reaped = asdict(use_cases().reaping.run())
    logger.info("reaped", extra=reaped)
    return reaped
