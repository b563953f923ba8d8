"""A store that keeps large texts of tasks elsewhere: each is written before its task is."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from headrace.domain.change import Change
from headrace.domain.ids import new_request_token
from headrace.domain.offload import ObjectStore, Offload
from headrace.store.base import Noting, Outcome, Record, Store


class Offloading:
    """Passes everything on to *store*, texts over *most* bytes by way of *objects*; 0: none."""

    def __init__(
        self,
        store: Store,
        objects: ObjectStore,
        most: int,
        new_token: Callable[[], str] = new_request_token,
    ) -> None:
        self._store = store
        self._objects = objects
        self._most = most or math.inf
        self._new_token = new_token

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the store has
        return getattr(self._store, name)

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,
        noting: Noting | None = None,
    ) -> list[Outcome]:
        """Make *changes* as the store does; raises Unavailable, and makes none, without objects."""
        return self._store.commit(self._put(changes), partly=partly, noting=noting)

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        """Write records, and *tasks* with them, as the store does."""
        return self._store.put_records(writes, tasks=self._put(tasks))

    def _put(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Write what is large, and return the changes that refer to it."""
        offload = Offload(self._most, self._new_token, {})
        planned = [offload.plan(change) for change in changes]
        if offload.contents:
            self._objects.put(offload.contents)
        return planned

    @property
    def store(self) -> Store:
        """The same, for those who ask for a store."""
        return cast("Store", self)
