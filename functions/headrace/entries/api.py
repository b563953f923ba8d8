"""Lambda entry point of the HTTP API: API Gateway's event in, its answer out."""

from headrace.runtime.function import starting

with starting():
    from headrace.http.app import handle as handler
    from headrace.runtime.wiring import prepare

    prepare("keys", "queues", "tasks", "deliveries", "leases", "limiting", "reports", "spawning")

__all__ = ["handler"]
