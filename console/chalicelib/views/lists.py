"""The lists that are searched besides that of tasks: where each is, for whom, and its language."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from headrace.domain.access import Permission
from headrace.domain.list_query import ListLanguage
from headrace.ops.search.list_queries import LANGUAGES

from .. import urls

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class SearchedList(Generic[Row]):
    """A list: ``name`` is what many of its rows are called, ``one`` what one is.

    The keys in ``details`` are read from payloads.  ``by`` is its order, in words.
    """

    name: str
    one: str
    route: str
    needs: Permission
    example: str
    by: str
    details: frozenset[str] = frozenset()
    per_page: int = 50

    @property
    def language(self) -> ListLanguage[Row]:
        """Its keys, and what they mean."""
        return LANGUAGES[self.name]


_ALL: Final[tuple[SearchedList[Any], ...]] = (
    SearchedList(
        "queues", "queue", urls.QUEUES, Permission.READ, "paused:yes mail",
        "name", per_page=200,
    ),
    SearchedList(
        "workers", "worker", urls.WORKERS, Permission.LIST, "queue:mail state:late",
        "name",
    ),
    SearchedList(
        "schedules", "schedule", urls.SCHEDULES, Permission.READ, "queue:mail paused:yes",
        "queue and name", details=frozenset({"task"}),
    ),
    SearchedList(
        "workflows", "workflow", urls.WORKFLOWS, Permission.READ, "state:stalled dead:yes",
        "id",
    ),
    SearchedList(
        "keys", "key", urls.KEYS, Permission.ADMINISTER, "queue:mail role:worker",
        "creation time",
    ),
    SearchedList(
        "activity", "change", urls.ACTIVITY, Permission.OPERATE, "actor:ada action:purge",
        "time", per_page=100,
    ),
    SearchedList(
        "errors", "error", urls.ERRORS, Permission.LIST, "task:mail.send error:Timeout -queue:sms",
        "its number of tasks", details=frozenset({"task"}),
    ),
)  # fmt: skip

LISTS: Final[Mapping[str, SearchedList[Any]]] = {each.name: each for each in _ALL}
"""By their names."""
