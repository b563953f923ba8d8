"""Every order in which the calls of a few actors may reach the store.

Each actor runs on a thread of its own and stops before each of its calls that the case is about;
one of them at a time is let go on.  A run is given the first choices, takes the first actor from
there on, and notes where it might have chosen otherwise: those are the next runs.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.domain.errors import HeadraceError
from headrace.store.base import Store


class CutError(Exception):
    """The process ends here."""


@dataclass
class Actor:
    """Does *act* with a store, up to the *calls*-th of its calls (None: all of them).

    Of those that do the same *what*, it does not matter which goes on first.
    """

    act: Callable[[], Any]
    calls: int | None = None
    what: str | None = None
    answer: Any = None
    refusal: HeadraceError | None = None
    cut: bool = False
    over: bool = False
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self._stopped.acquire()

    def _run(self) -> None:
        _THREAD.actor = self
        try:
            self.answer = self.act()
        except HeadraceError as refusal:
            self.refusal = refusal
        except CutError:
            self.cut = True
        finally:
            self.over = True
            self._stopped.release()

    def wait(self) -> None:
        """Stop, on the actor's thread, before a call."""
        if self.calls == 0:
            raise CutError
        if self.calls is not None:
            self.calls -= 1
        self._stopped.release()
        self._go.acquire()

    def go_on(self) -> None:
        self._go.release()
        self._stopped.acquire()


_THREAD = threading.local()


class Gated:
    """A store that lets an actor stop before its calls about *kinds* of records."""

    def __init__(self, store: Store, *kinds: str) -> None:
        self._store, self._kinds = store, kinds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)

        def call(*given: Any, **named: Any) -> Any:
            actor = getattr(_THREAD, "actor", None)
            if actor is not None and _kind(given) in self._kinds:
                actor.wait()
            return found(*given, **named)

        return call


def _kind(given: Sequence[Any]) -> str | None:
    """Return the kind of record that a call is about."""
    first = given[0] if given else None
    while isinstance(first, list | tuple):
        first = first[0]
    return first if isinstance(first, str) else getattr(first, "kind", None)


def all_orders(begin: Callable[[], Sequence[Actor]]) -> Iterator[None]:
    """Run the actors that *begin* makes anew each time, in each order; yield after each."""
    todo: list[tuple[int, ...]] = [()]
    while todo:
        choices = todo.pop()
        actors = begin()
        for actor in actors:
            actor.start()
        step = 0
        fresh = {place: actor.what for place, actor in enumerate(actors) if actor.what is not None}
        while waiting := [place for place, actor in enumerate(actors) if not actor.over]:
            waiting = [
                place
                for place in waiting
                if place not in fresh
                or place == min(one for one in fresh if fresh[one] == fresh[place])
            ]
            if step < len(choices):
                chosen = choices[step]
            else:
                chosen, *others = waiting
                todo += [(*choices, other) for other in others]
                choices = (*choices, chosen)
            fresh.pop(chosen, None)
            actors[chosen].go_on()
            step += 1
        yield
