"""Lambda entry point of the HTTP API: API Gateway's event in, its answer out."""

from headrace.runtime.function import starting

with starting():
    from aws_lambda_powertools import Logger

    from headrace.http.app import handle as handler
    from headrace.runtime.wiring import prepare

    Logger(service="headrace")  # lines of the logger "headrace", and of those below it, as JSON
    prepare(
        "keys", "queues", "tasks", "deliveries", "leases", "tokens", "slots", "reports", "spawning"
    )

__all__ = ["handler"]
