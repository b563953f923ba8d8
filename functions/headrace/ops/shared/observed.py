"""The store as the use cases have it: what is written through it is learnt from, whoever writes."""

from collections.abc import Sequence
from typing import Any, cast

from headrace.domain.change import Change
from headrace.domain.group import Group, GroupChange
from headrace.ops.shared.slots import Slots
from headrace.ops.shared.suspects import Watch
from headrace.store.base import Outcome, Store


class Observed:
    """Passes everything on to *store*.

    It frees the slots of what is ended, and lets *watch* know of leases.
    """

    def __init__(self, store: Store, slots: Slots, watch: Watch) -> None:
        self._store = store
        self._slots = slots
        self._watch = watch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the store has
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change], *, partly: bool = False) -> list[Outcome]:
        """Make *changes* as the store does."""
        outcomes = self._store.commit(changes, partly=partly)
        self._slots.ended(changes, outcomes)
        self._watch.written(changes, outcomes)
        return outcomes

    def change_group(self, change: GroupChange) -> Group | None:
        """Make *change* as the store does."""
        group = self._store.change_group(change)
        if group is not None:
            self._watch.extended(group)
        return group

    @property
    def store(self) -> Store:
        """The same, for those who ask for a store."""
        return cast("Store", self)
