"""The context of a request: the request, who makes it, and the use cases it may ask.

``allowed`` is the one place that says who may do what: pages ask it what to draw, and views ask it
again, through ``require``, before they do anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from console.chalicelib.request import ConsoleRequest
from console.chalicelib.session import Signing
from headrace.domain.access import Permission, Principal
from headrace.domain.errors import Unauthenticated
from headrace.runtime.wiring import UseCases
from headrace.store.records.sessions import Session


def allowed(by: Principal, permission: Permission, queue: str | None = None) -> bool:
    """Tell whether *by* has *permission*, and has it for *queue* if one is named."""
    return by.may(permission, queue)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a view works with; ``principal`` and ``session`` are None where nobody is signed in."""

    request: ConsoleRequest
    use: UseCases
    signing: Signing
    now: datetime
    principal: Principal | None = None
    session: Session | None = field(default=None, repr=False)

    @property
    def by(self) -> Principal:
        """Who is signed in.  Raises Unauthenticated for nobody."""
        if self.principal is None:
            raise Unauthenticated("sign in first")
        return self.principal

    def allows(self, permission: Permission, queue: str | None = None) -> bool:
        """Tell whether whoever is signed in may do so: what to draw."""
        return allowed(self.by, permission, queue)

    def require(self, permission: Permission, *queues: str) -> None:
        """Raise Forbidden unless it is allowed, for each of *queues*: what may be done."""
        if not all(allowed(self.by, permission, queue) for queue in queues or (None,)):
            self.by.require(permission, *queues)

    def url(self, route: str, /, query: Mapping[str, object] | None = None, **names: str) -> str:
        """Return an address of ours as this visitor must see it."""
        return self.request.urls.to(route, query, **names)

    @property
    def queue(self) -> str:
        """The queue in the path."""
        return self.request.names["queue"]
