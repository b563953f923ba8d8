"""Who waits is woken by the commit that it waits for, whoever makes it, and by no chance missed."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.store.sqlite.arrivals import ArrivalNumbers
from headrace.store.sqlite.database import Database
from tests.forked import in_children

LONG = 20.0  # seconds: nobody who is woken waits so long
ARRIVE = (
    "INSERT INTO arrivals (queue, number) VALUES (?, 1)"
    " ON CONFLICT (queue) DO UPDATE SET number = number + 1"
)


class Process:
    """The file as a process has it: connections, and a bell, of its own."""

    def __init__(self, path: Path) -> None:
        self.db = Database(str(path))
        self.arrivals = ArrivalNumbers(self.db)

    def arrive(self, queue: str = "mail") -> None:
        self.db.write(lambda db: db.execute(ARRIVE, (queue,)).rowcount)
        self.arrivals.ring()

    def arrive_after(self, seconds: float) -> None:
        time.sleep(seconds)
        self.arrive()

    def write_something_else(self) -> None:
        self.db.write(lambda db: db.execute("DELETE FROM groups").rowcount)
        self.db.write(lambda db: db.execute("INSERT OR REPLACE INTO groups VALUES ('x', 1, '')"))

    def waited(self, *queues: str, since: dict[str, int], seconds: float = LONG) -> float:
        """Wait, and return for how long."""
        begun = time.monotonic()
        self.arrivals.wait(queues, since, seconds)
        return time.monotonic() - begun


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "headrace.db")
    yield process
    process.db.close()


@pytest.fixture
def there(here: Process) -> Iterator[Process]:
    process = Process(Path(here.db.name))
    yield process
    process.db.close()


@pytest.mark.parametrize("by", ["here", "there"])
def test_every_commit_wakes_whoever_waits_whenever_it_comes(
    by: str, here: Process, there: Process
) -> None:
    """At moments all around those at which one begins to wait, and asks."""
    chance, other = random.Random(7), here if by == "here" else there
    with ThreadPoolExecutor(1) as pool:
        for number in range(150):
            since = {"mail": number} if number else {}
            pause = chance.choice([0, 0, 0.0005, 0.001, 0.002, 0.003, 0.01])
            arriving = pool.submit(other.arrive_after, pause)
            assert here.waited("mail", since=since) < LONG / 4
            arriving.result()


def test_a_child_that_was_forked_waits_for_itself(here: Process, there: Process) -> None:
    """It begins while a thread of its parent waits, whose watch it has a copy of."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.waited, "mail", since={})
        time.sleep(0.05)
        arriving = threading.Timer(0.3, there.arrive)
        arriving.start()
        (seconds,) = in_children(1, lambda _: here.waited("mail", since={}))
        assert seconds < LONG / 4
        assert waiting.result() < LONG / 4
        arriving.join()


def test_in_memory_the_bell_alone_tells() -> None:
    database = Database(":memory:")
    arrivals = ArrivalNumbers(database)

    def arrive() -> None:
        database.write(lambda db: db.execute(ARRIVE, ("mail",)).rowcount)
        arrivals.ring()

    timer = threading.Timer(0.02, arrive)
    timer.start()
    begun = time.monotonic()
    arrivals.wait(["mail"], {}, LONG)

    assert time.monotonic() - begun < LONG / 4
    timer.join()
    database.close()
