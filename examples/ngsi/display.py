"""What a person sees while the demo runs: bars in a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from examples.ngsi.app import ENTITIES_QUEUE, NOTIFY_QUEUE
from headrace.domain.task import FINISHED, SHOWN_STATES, State

PLAIN_EVERY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the demo is: notifications taken, and the tasks of each queue by state."""

    posted: int
    counts: Mapping[str, Mapping[State, int]]
    seconds: float

    def of(self, *states: State) -> int:
        """How many tasks are in these states, in both queues together."""
        return sum(by_state.get(state, 0) for by_state in self.counts.values() for state in states)


class Display:
    """A context: the bars are there while it lasts."""

    def __init__(self, console: Console, total: int) -> None:
        """``total`` is the number of notifications to come."""
        self.console = console
        self._total = total
        self._shown_at = time.monotonic()
        self._shown = ""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line, above the bars if there are any."""
        self.console.print(text, highlight=False)

    def show(self, standing: Standing) -> None:
        """Bring what is seen up to date."""
        if self._progress.disable:
            if time.monotonic() - self._shown_at >= PLAIN_EVERY_SECONDS:
                self._say_plainly(standing)
            return
        moved = sum(standing.counts.get(ENTITIES_QUEUE, {}).values())
        split = moved + standing.counts.get(NOTIFY_QUEUE, {}).get(State.DEAD, 0)
        waiting = f"{standing.of(State.ENQUEUED)} waiting, {standing.of(State.INFLIGHT)} in flight"
        self._bar("notifications taken", standing.posted, "")
        self._bar("split into rows, or dead", split, f"{standing.of(State.DEAD)} dead")
        self._bar("finished", standing.of(*FINISHED), waiting)

    def _say_plainly(self, standing: Standing) -> None:
        ready, running, well, dead = map(standing.of, SHOWN_STATES)
        text = f"waiting {ready}  in flight {running}  succeeded {well}  dead {dead}"
        if text != self._shown:  # nothing new is no news
            self._shown_at, self._shown = time.monotonic(), text
            self.say(f"{standing.seconds:5.1f} s  {text}")

    def _bar(self, name: str, completed: int, note: str) -> None:
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=self._total, note=note)
        self._progress.update(self._bars[name], completed=completed, note=note)
