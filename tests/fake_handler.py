"""A Lambda handler that answers what it is told, and the routes that lead to it."""

from dataclasses import dataclass, field
from typing import Any

from headrace.local.gateway import Event, InvocationContext
from headrace.local.tables import ApiRoute, Function

API = Function("ApiFunction", "api.handler", timeout_seconds=29, memory_mb=512)
ROUTES = [
    ApiRoute("ANY", "/v1/{proxy+}", API),
    ApiRoute("GET", "/v2/things/{thing}", API),
    ApiRoute("POST", "/v2/things/{thing}", API),
    ApiRoute("GET", "/v2/things/special", API),
]


@dataclass
class FakeHandler:
    """Keeps what it is called with, and answers what it is told."""

    answer: Any = field(default_factory=lambda: {"statusCode": 200, "body": "fine"})
    events: list[Event] = field(default_factory=list)
    contexts: list[InvocationContext] = field(default_factory=list)

    def __call__(self, event: Event, context: InvocationContext) -> Any:
        self.events.append(event)
        self.contexts.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
