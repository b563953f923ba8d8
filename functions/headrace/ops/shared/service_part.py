"""The base of the service's parts."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.runtime.service import Service


class ServicePart:
    """A part of the service; finds the other parts through *service*."""

    def __init__(self, service: "Service") -> None:
        self.service = service
        self.store = service.store
        self.now = service.now
