"""The filter of a list of tasks, to and from the address of its page."""

from collections.abc import Mapping
from typing import Final

from console.chalicelib import urls
from console.chalicelib.forms import Errors
from console.chalicelib.parts import Field, FilterForm, Hidden, Option
from console.chalicelib.request_context import RequestContext
from headrace.domain import limits
from headrace.domain.filters import STATE_WORDS, TaskFilter
from headrace.domain.fingerprint import FINGERPRINT_RE, LENGTH

STATE: Final = "state"
ORDER: Final = "order"
NAMES: Final = ("tag", "worker", "error", "fingerprint", "after", "before", "attempts")
_NEWEST_FIRST: Final = ("DEAD", "SUCCEEDED", "failed")


class TaskQuery:
    """What the address asks for; ``errors`` holds what it gets wrong."""

    def __init__(self, context: RequestContext) -> None:
        self.given: Mapping[str, str] = {
            name: context.request.param(name) for name in (STATE, *NAMES, ORDER, "limit")
        }
        self.errors = Errors()
        self.state = self.given[STATE]
        if self.state and self.state not in STATE_WORDS:
            self.errors.add(STATE, f"must be one of {', '.join(STATE_WORDS)}")
            self.state = ""
        errors = self.errors
        self.where = TaskFilter(
            states=(self.state,) if self.state else (),
            tags=errors.tags("tag", self.given["tag"]),
            worker=errors.text("worker", self.given["worker"], limits.WORKER_BYTES),
            scheduled_after=errors.instant("after", self.given["after"]),
            scheduled_before=errors.instant("before", self.given["before"]),
            min_attempts=errors.whole("attempts", self.given["attempts"], limits.COUNT),
            error=errors.text("error", self.given["error"], limits.ERROR_BYTES),
            fingerprint=self._fingerprint(),
        )
        self.limit = errors.whole("limit", self.given["limit"], (1, limits.LIST_PAGE)) or 50

    def _fingerprint(self) -> str | None:
        given = self.given["fingerprint"]
        if given and not FINGERPRINT_RE.fullmatch(given):
            self.errors.add("fingerprint", f"must be {LENGTH} digits from 0 to f, or nothing")
            return None
        return given or None

    @property
    def descending(self) -> bool:
        """Whether the newest come first: as asked, else where what ended last matters most."""
        order = self.given[ORDER]
        return order == "desc" if order in ("asc", "desc") else self.state in _NEWEST_FIRST

    @property
    def narrowed(self) -> bool:
        """Whether anything besides the state is filtered by."""
        return any(self.given[name] for name in NAMES)

    def query(self, **changed: object) -> dict[str, object]:
        """Return the query that asks the same, with something *changed*."""
        return {**self.given, **changed}


def form(context: RequestContext, wanted: TaskQuery) -> FilterForm:
    """Return the form, as filled in."""
    given, error_of = wanted.given, wanted.errors.of
    order = "desc" if wanted.descending else "asc"
    fields: tuple[Field, ...] = (
        Field("error", "Error has", given["error"], error=error_of("error"),
              hint="in type, message or detail"),
        Field("tag", "Tags", given["tag"], error=error_of("tag"), hint="key=value, key=value"),
        Field("worker", "Worker", given["worker"], error=error_of("worker"), hint="exactly"),
        Field("attempts", "Attempts, at least", given["attempts"], "number", width="s",
              error=error_of("attempts")),
        Field("after", "After, UTC", given["after"], "datetime-local", error=error_of("after")),
        Field("before", "Before, UTC", given["before"], "datetime-local",
              error=error_of("before")),
        Field(ORDER, "Order", order, "select", width="s", options=(
            Option("asc", "oldest first", order == "asc"),
            Option("desc", "newest first", order == "desc"),
        )),
        Field("limit", "Per page", str(wanted.limit), "select", width="s",
              error=error_of("limit"), options=tuple(
                  Option(str(size), str(size), size == wanted.limit)
                  for size in sorted({25, 50, 100, 250, wanted.limit}))),
    )  # fmt: skip
    if given["fingerprint"]:
        alike = Field("fingerprint", "Errors like", given["fingerprint"],
                      hint="of the dead letters", error=error_of("fingerprint"))  # fmt: skip
        fields = (alike, *fields)
    here = context.url(urls.QUEUE, queue=context.queue)
    clear = context.url(urls.QUEUE, {STATE: wanted.state}, queue=context.queue)
    return FilterForm(
        action=here,
        fields=fields,
        hidden=(Hidden(STATE, wanted.state),) if wanted.state else (),
        clear=clear if wanted.narrowed else None,
        open=wanted.narrowed or bool(wanted.errors),
    )
