"""A shop: its database, and the tasks of its app."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from headrace import App
from headrace.outbox.relay import Relay
from headrace.outbox.sqlalchemy import SqlAlchemyOutbox
from headrace.outbox.sqlalchemy.table import SqlAlchemyTable
from tests.faults import FaultyService


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


OUTBOX = SqlAlchemyOutbox(Base.metadata)

app = App()


@app.task(queue="mail", name="receipt")
def send_receipt(order: int) -> None:
    """Send it."""


@dataclass
class Shop:
    """A database with the shop's tables, and the service."""

    engine: sa.Engine
    service: FaultyService

    @property
    def table(self) -> SqlAlchemyTable:
        return OUTBOX.open(self.engine)

    @property
    def relay(self) -> Relay:
        return Relay(self.table, self.service.client)

    def session(self) -> Session:
        return Session(self.engine)

    def orders(self) -> list[str]:
        with self.session() as session:
            return list(session.scalars(sa.select(Order.item).order_by(Order.id)))

    def tasks(self, queue: str = "mail") -> list[str]:
        """The ids of the tasks in *queue*, in order."""
        return [task.id for task in self.service.client.list_tasks(queue)]


@contextmanager
def shop_in(url: str, service: FaultyService) -> Iterator[Shop]:
    """Make the tables of a shop, and drop them afterwards."""
    engine = sa.create_engine(url)
    try:
        Base.metadata.drop_all(engine)
        Base.metadata.create_all(engine)
        yield Shop(engine, service)
    finally:
        engine.dispose()
