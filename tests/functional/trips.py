"""How far a request travels: through how many modules of the service, none of them a detour.

Counted are the modules of ``headrace`` in which some function runs while a warm service, which
knows the queue, answers one request.  Not counted are:

- what every request passes (``app`` to ``permissions``, the key, ``repeats``), and what is wired
  around it (``runtime``, the clock);
- what ``dataclass`` writes;
- what the store calls: it counts as one, for on DynamoDB it calls others than in memory.

Counted so, it was 20 for an enqueue and 26 for a dequeue before the rooms were put in order, and is
14 and 18 now.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from tests.functional.conftest import Service

_STORE: Final = "headrace.store."
_EVERY_REQUEST: Final = (
    *("headrace.http.app", "headrace.http.events", "headrace.http.request"),
    *("headrace.http.routing", "headrace.http.permissions", "headrace.domain.access"),
    *("headrace.ops.operators.keys", "headrace.domain.access", "headrace.ops.shared.audit"),
    *("headrace.runtime.", "headrace.testing.", "headrace.store.base", "headrace.local."),
    *("headrace.store.call_scope", "headrace.http.repeats"),
)


def passed(request: Callable[[], object]) -> set[str]:
    """Return the modules that *request* passes."""
    seen = set[str]()

    def look(frame: FrameType, event: str, _arg: Any) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        written = frame.f_code.co_filename == "<string>"  # by dataclass
        if event != "call" or written or not name.startswith("headrace."):
            return
        if name.startswith(_EVERY_REQUEST) or _in_the_store(frame.f_back):
            return
        seen.add(_STORE if name.startswith(_STORE) else name)

    sys.setprofile(look)
    try:
        request()
    finally:
        sys.setprofile(None)
    return seen


def _in_the_store(frame: FrameType | None) -> bool:
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(_STORE) and not name.startswith(_EVERY_REQUEST):
            return True
        frame = frame.f_back
    return False


def test_an_enqueue_passes_fourteen_modules_at_most(call: Service) -> None:
    queue = call.queue()
    call.put(queue, 1)

    modules = passed(lambda: call.put(queue, 2))

    assert len(modules) <= 14, "\n".join(sorted(modules))


def test_a_dequeue_passes_eighteen_modules_at_most(call: Service) -> None:
    queue = call.queue()
    call.put(queue, 1, 2)
    assert call.take(queue)
    call.clock.forward(1)

    modules = passed(lambda: call.take(queue))

    assert len(modules) <= 18, "\n".join(sorted(modules))
