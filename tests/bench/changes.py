"""Whether writing gets slower with the number of changes the engine's stream has seen."""

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rich.progress import Progress

from headrace.local.folder import temporary_folder
from tests.bench.bare import BareClient
from tests.bench.engines import bare_engine
from tests.bench.results import Bar, PartOutcome, table
from tests.bench.sizes import BATCH, Sizes

RATE_KEPT: Final = 0.9
_BATCHES: Final = 2
"""Of one window: few, so that the young engine stays young while it is measured."""


@dataclass(frozen=True, slots=True)
class RateWindow:
    """Put rates measured one after the other, in tasks per second."""

    young: float
    old: float


def run(sizes: Sizes, progress: Progress) -> PartOutcome:
    """Compare the put rates of an engine after few changes and one after many, in turns."""
    few, many, number = sizes.few_changes, sizes.many_changes, sizes.put_windows
    bar = progress.add_task("put rate by changes", total=few + many + 2 * number * _BATCHES * BATCH)
    with contextlib.ExitStack() as stack:
        clients = []
        for changes in (few, many):
            engine = stack.enter_context(bare_engine(stack.enter_context(temporary_folder())))
            client = stack.enter_context(BareClient(engine.url, "changes"))
            clients.append(client)
            _put(client, changes, lambda count: progress.advance(bar, count))
        windows = [_window(*clients, young_first=place % 2 == 0) for place in range(number)]
    young = statistics.median(window.young for window in windows)
    old = statistics.median(window.old for window in windows)
    kept = statistics.median(window.old / window.young for window in windows)
    progress.update(bar, completed=few + many + 2 * number * _BATCHES * BATCH)
    shown = table(f"Put rate, batches of {BATCH} (median of {number} windows)", "After", "Puts/s")
    shown.add_row(f"{few:,} changes", f"{young:,.0f}")
    shown.add_row(f"{many:,} changes", f"{old:,.0f}")
    return PartOutcome(
        figures={
            "changes": [few, many],
            "windows": number,
            "puts_per_second": [young, old],
            "rate_kept": kept,
        },
        tables=[shown],
        notes=["At the engine itself, in memory: a service or a disk would hide what it loses."],
        bars=[
            Bar(f"Put rate after {many:,} changes : after {few:,}", kept, RATE_KEPT, at_most=False)
        ],
    )


def _put(client: BareClient, count: int, done: Callable[[int], object]) -> None:
    for _ in range(0, count, BATCH):
        client.insert(BATCH)
        done(BATCH)


def _window(young: BareClient, old: BareClient, *, young_first: bool) -> RateWindow:
    if young_first:
        return RateWindow(_rate(young), _rate(old))
    after_many = _rate(old)
    return RateWindow(_rate(young), after_many)


def _rate(client: BareClient) -> float:
    started = time.perf_counter()
    _put(client, _BATCHES * BATCH, lambda _count: None)
    return _BATCHES * BATCH / (time.perf_counter() - started)
