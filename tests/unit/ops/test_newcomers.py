"""A worker that comes later: who takes from all learns of it by the first race it loses."""

from datetime import timedelta

from headrace.domain.queue import QueueSettings
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.delivery.contention import LISTED_FOR, LISTED_WHERE_CHEAP_FOR, Members
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.runtime.wiring import Settings, build
from headrace.store.memory import MemoryStore
from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock


class Pool:
    """A queue, its workers, and what a process of the first one knows of them."""

    def __init__(self, *, listed_for: timedelta) -> None:
        self.clock = ManualClock()
        store = MemoryStore()
        self._use = build(Settings(admin_key="test"), store, now=self.clock)
        self.queue = self._use.queues.create("mail", QueueSettings())
        self.members = Members(store, self.clock, listed_for)

    def comes(self, worker: str) -> None:
        sign = WorkerHeartbeat(worker, ("mail",), self.clock())
        self._use.workers.alive(BOOTSTRAP, sign)

    def loses(self) -> None:
        self.members.raced("mail", 25, 0)

    def asks(self) -> bool:
        """Whether the list of workers would be asked for once more."""
        return not self.members.known(self.queue, "ada")[1]


def test_a_worker_that_lost_leases_to_a_newcomer_divides_the_queue_with_it() -> None:
    pool = Pool(listed_for=LISTED_WHERE_CHEAP_FOR)
    pool.comes("ada")
    assert pool.members.ask(pool.queue, "ada") is None
    pool.comes("bob")
    pool.clock.forward(0.05)

    pool.loses()

    assert pool.asks()
    portion = pool.members.ask(pool.queue, "ada")
    assert portion is not None
    assert portion.members == 2


def test_who_has_lost_asks_again_ten_times_as_soon() -> None:
    for listed_for in (LISTED_FOR, LISTED_WHERE_CHEAP_FOR):
        pool = Pool(listed_for=listed_for)
        pool.comes("ada")
        pool.members.ask(pool.queue, "ada")

        pool.clock.forward(listed_for / 10 - timedelta(milliseconds=1))
        pool.loses()
        assert not pool.asks()
        pool.clock.forward(timedelta(milliseconds=1))
        pool.loses()
        assert pool.asks()

        pool.members.ask(pool.queue, "ada")
        pool.clock.forward(listed_for - timedelta(milliseconds=1))
        assert not pool.asks()
        pool.clock.forward(timedelta(milliseconds=1))
        assert pool.asks()


def test_a_list_is_read_more_often_where_that_costs_nothing() -> None:
    file = build(Settings(admin_key="test"), SqliteStore())
    elsewhere = build(Settings(admin_key="test"), MemoryStore())

    assert file.deliveries.members.listed_for == LISTED_WHERE_CHEAP_FOR
    assert elsewhere.deliveries.members.listed_for == LISTED_FOR
