"""Who waits is woken by the commit that it waits for, whoever makes it, and by no chance missed."""

import random
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.store.sqlite.arrivals import ArrivalNumbers
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.touches import touch
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


def test_nobody_waits_for_what_has_come_already(here: Process, there: Process) -> None:
    there.arrive()

    assert here.waited("mail", since={}) < 1


def test_whoever_waits_in_vain_is_let_go_in_time(here: Process) -> None:
    assert 0.05 <= here.waited("mail", since={}, seconds=0.05) < 1


def test_other_queues_and_other_writes_wake_nobody_for_good(here: Process, there: Process) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.waited, "mail", since={}, seconds=0.3)
        while not waiting.done():
            there.arrive("other")
            here.arrive("other")
            there.write_something_else()
        assert waiting.result() >= 0.3


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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody is told")
def test_the_touch_of_another_process_is_enough(here: Process, there: Process) -> None:
    """Nobody asks now and then, at any moment around the commit."""
    here.arrivals = ArrivalNumbers(here.db, all_the_same_seconds=LONG)
    chance = random.Random(7)
    with ThreadPoolExecutor(1) as pool:
        for number in range(100):
            since = {"mail": number} if number else {}
            arriving = pool.submit(there.arrive_after, chance.choice([0, 0.0005, 0.001, 0.01]))
            assert here.waited("mail", since=since) < LONG / 4
            arriving.result()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody is told")
def test_the_bell_is_heard_by_whoever_waits_for_a_touch(here: Process) -> None:
    here.arrivals = ArrivalNumbers(here.db, all_the_same_seconds=LONG)
    with ThreadPoolExecutor(1) as pool:
        for number in range(30):
            since = {"mail": number} if number else {}
            arriving = pool.submit(here.arrive_after, 0.005)
            assert here.waited("mail", since=since) < LONG / 4
            arriving.result()


def test_an_interruption_is_not_taken_for_a_file_that_cannot_be_touched() -> None:
    class Interrupted:
        def __fspath__(self) -> str:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        touch(Interrupted())  # type: ignore[arg-type]  # the moment that it comes at
    touch(Path("/nowhere/at/all"))


def test_what_came_without_a_touch_is_seen_all_the_same(here: Process, there: Process) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.waited, "mail", since={})
        time.sleep(0.05)
        there.db.write(lambda db: db.execute(ARRIVE, ("mail",)).rowcount)
        assert waiting.result() < LONG / 4


def test_a_waiting_process_hears_of_a_commit_within_five_milliseconds(
    here: Process, there: Process
) -> None:
    """From the end of the commit; the quicker third of thirty, as others use the machine too."""
    late = []
    with ThreadPoolExecutor(1) as pool:
        for number in range(30):
            since = {"mail": number} if number else {}
            begun = time.monotonic()
            waiting = pool.submit(here.waited, "mail", since=since)
            time.sleep(0.02)
            there.arrive()
            arrived = time.monotonic()
            late.append(begun + waiting.result() - arrived)
    assert sorted(late)[10] < 0.005


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


def test_of_many_who_wait_all_are_woken_though_one_asks(here: Process, there: Process) -> None:
    """Those who ask come and go, and each asks on whatever connection is free."""
    chance = random.Random(7)
    stop = threading.Event()

    def comes_and_goes() -> None:
        while not stop.is_set():
            here.waited("mail", "other", since=dict(here.arrivals.numbers(["mail", "other"])),
                        seconds=chance.uniform(0.001, 0.01))  # fmt: skip

    with ThreadPoolExecutor(9) as pool:
        others = [pool.submit(comes_and_goes) for _ in range(4)]
        for number in range(30):
            since = {"mail": number} if number else {}
            waiting = [pool.submit(here.waited, "mail", since=since) for _ in range(5)]
            time.sleep(chance.uniform(0, 0.01))
            there.arrive()
            assert max(one.result() for one in waiting) < LONG / 4
        stop.set()
        for one in others:
            one.result()


def test_a_commit_between_the_look_and_the_asking_is_not_missed(
    here: Process, there: Process
) -> None:
    class Overtaken(ArrivalNumbers):
        def numbers(self, queues: Collection[str]) -> Mapping[str, int]:
            found = super().numbers(queues)
            if not found:
                there.arrive()
            return found

    begun = time.monotonic()
    Overtaken(here.db).wait(["mail"], {}, LONG)

    assert time.monotonic() - begun < LONG / 4


def test_whoever_waited_is_told_the_numbers(here: Process, there: Process) -> None:
    assert here.arrivals.wait(["mail"], {}, 0.01) == {}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.arrivals.wait, ["mail", "news"], {}, LONG)
        there.arrive("other")
        there.arrive()

        assert waiting.result() == {"mail": 1}


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
