"""The lists that are searched besides that of tasks: where each is, for whom, and its language."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from headrace.domain.access import Permission
from headrace.domain.list_query import ListLanguage
from headrace.ops.search.list_queries import LANGUAGES

from .. import urls

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class SearchedList(Generic[Row]):
    """A list: ``name`` is what many of its rows are called, ``one`` what one is.

    ``named`` are parameters of an address that stand for the terms of a key.  What ``details`` are
    is read from payloads.  ``by`` is the order in which it is read, in words.
    """

    name: str
    one: str
    route: str
    needs: Permission
    example: str
    by: str
    named: Mapping[str, str] = field(default_factory=dict)
    details: frozenset[str] = frozenset()
    per_page: int = 50

    @property
    def language(self) -> ListLanguage[Row]:
        """Its keys, and what they mean."""
        return LANGUAGES[self.name]


_OF_TIME: Final = {"from": "after", "to": "before"}

_ALL: Final[tuple[SearchedList[Any], ...]] = (
    SearchedList(
        "queues", "queue", urls.QUEUES, Permission.READ, "paused:yes mail",
        "name", {"name": "name"}, per_page=200,
    ),
    SearchedList(
        "workers", "worker", urls.WORKERS, Permission.LIST, "queue:mail state:late",
        "name", {"queue": "queue"},
    ),
    SearchedList(
        "schedules", "schedule", urls.SCHEDULES, Permission.READ, "queue:mail paused:yes",
        "queue and name", details=frozenset({"task"}),
    ),
    SearchedList(
        "workflows", "workflow", urls.WORKFLOWS, Permission.READ, "state:stalled dead:yes",
        "id", {"name": "id"},
    ),
    SearchedList(
        "keys", "key", urls.KEYS, Permission.ADMINISTER, "queue:mail role:worker",
        "creation time",
    ),
    SearchedList(
        "activity", "change", urls.ACTIVITY, Permission.OPERATE, "actor:ada action:purge",
        "time", {"queue": "queue", "actor": "actor", "action": "action", **_OF_TIME},
    ),
    SearchedList(
        "errors", "error", urls.ERRORS, Permission.LIST, "task:mail.send error:Timeout -queue:sms",
        "its number of tasks", details=frozenset({"task"}),
    ),
)  # fmt: skip

LISTS: Final[Mapping[str, SearchedList[Any]]] = {each.name: each for each in _ALL}
"""By their names."""
