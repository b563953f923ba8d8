"""Clients that wait by the service's clock: while they do, time passes and its apps work."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol, TypeVar

from headrace.client.aio import AsyncClient
from headrace.client.calls.waiting import CallSteps, Look, TaskLook, look_at_task
from headrace.client.client import Client

L = TypeVar("L", bound=Look)


class Watch(Protocol):
    """Goes on looking until that has ended, or for so many seconds of the service's time."""

    def __call__(self, look: Callable[[], L], timeout: float | None) -> Iterator[L]:
        """Yield each look."""


class SimulatedClient(Client):
    """A client whose waiting is up to *watch*."""

    def __init__(self, *address: str, watch: Watch, **settings: Any) -> None:  # noqa: ANN401  Client's own
        super().__init__(*address, **settings)
        self._watch = watch

    def _looks(
        self,
        id: str,
        timeout: float | None,
        *,
        payload: bool | None,
        turn: float | None = None,  # noqa: ARG002  nobody waits long
    ) -> Iterator[TaskLook]:
        return self._watch(lambda: self.send(look_at_task(id, payload=payload)), timeout)

    def _looked(self, look: Callable[[], CallSteps[L]], timeout: float | None) -> L:
        *_, last = self._watch(lambda: self._taken(look()), timeout)
        return last


class AsyncSimulatedClient(AsyncClient):
    """The same for programs with an event loop, which stands still meanwhile; *twin* looks."""

    def __init__(self, *address: str, watch: Watch, twin: Client, **settings: Any) -> None:  # noqa: ANN401  likewise
        super().__init__(*address, **settings)
        self._watch, self._twin = watch, twin

    async def _looks(
        self,
        id: str,
        timeout: float | None,  # noqa: ASYNC109  as the one it stands for
        *,
        payload: bool | None,
        turn: float | None = None,  # noqa: ARG002  likewise
    ) -> AsyncIterator[TaskLook]:
        for look in self._watch(
            lambda: self._twin.send(look_at_task(id, payload=payload)), timeout
        ):
            yield look

    async def _looked(self, look: Callable[[], CallSteps[L]], timeout: float | None) -> L:  # noqa: ASYNC109  likewise
        return self._twin._looked(look, timeout)  # noqa: SLF001  by the same clock
