"""All tasks of a store, for tests that look at what is left."""

from headrace.domain.task import Task
from headrace.store.base import Store


def everything(store: Store) -> list[Task]:
    """Return all there is under ids of tasks, also what is left of those that are gone."""
    found = store.ids("", limit=100_000)
    assert found is not None
    ids, more = found
    assert not more
    return [*store.read(ids).values(), *store.tombstones(ids).values()]
