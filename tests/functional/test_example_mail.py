"""The mail sender, against a real mail server."""

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from examples.mail.app import app, send, weekly
from headrace.testing import MemoryService


@dataclass
class Postbox:
    """A mail server's other end: keeps mails, and refuses what it is told to."""

    mails: list[Message] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    async def handle_RCPT(  # noqa: N802 (aiosmtpd's name)
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.refusals:
            return self.refusals.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 (aiosmtpd's name)
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        assert isinstance(envelope.content, bytes)
        self.mails.append(message_from_bytes(envelope.content))
        return "250 OK"


@pytest.fixture
def postbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Postbox]:
    box = Postbox()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Controller(box, hostname="127.0.0.1", port=port)
    server.start()
    monkeypatch.setenv("MAIL_HOST", "127.0.0.1")
    monkeypatch.setenv("MAIL_PORT", str(port))
    yield box
    server.stop()


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as service, service.serving(app):
        yield service


def test_a_mail_arrives(service: MemoryService, postbox: Postbox) -> None:
    made = send.enqueue(to="ada@example.com", subject="Hello", text="It works.")
    service.run(app)
    (mail,) = postbox.mails
    assert (mail["To"], mail["Subject"]) == ("ada@example.com", "Hello")
    assert mail["Message-ID"] == f"<{made.id}@headrace>"
    assert service.client.get_task(str(made.id)).result == f"<{made.id}@headrace>"


def test_a_busy_server_is_tried_again_with_the_same_message_id(
    service: MemoryService, postbox: Postbox
) -> None:
    postbox.refusals += ["451 try again later", "450 mailbox busy"]
    made = send.enqueue(to="ada@example.com", subject="Hello", text="…")
    ran = service.run(app, until_settled=True)
    assert [attempt.task.attempts for attempt in ran] == [1, 2, 3]
    assert [mail["Message-ID"] for mail in postbox.mails] == [f"<{made.id}@headrace>"]


def test_a_header_that_smuggles_another_is_rejected(
    service: MemoryService, postbox: Postbox
) -> None:
    made = send.enqueue(to="ada@example.com\nBcc: eve@example.com", subject="Hi", text="…")
    service.run(app, until_settled=True)
    assert service.client.get_task(str(made.id)).dead_reason == "rejected"
    assert not postbox.mails


def test_subscribers_hear_of_the_week_on_monday(
    service: MemoryService, postbox: Postbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_SUBSCRIBERS", "ada@example.com bob@example.com")
    service.run(app)  # a worker makes the schedule
    service.clock.forward_to(datetime(2026, 11, 22, 6, 30, tzinfo=UTC))  # Sunday, half past seven
    service.run(app, seconds=3_600)
    service.clock.forward_to(datetime(2026, 11, 23, 6, 30, tzinfo=UTC))
    service.run(app, seconds=29 * 60)
    assert not postbox.mails
    service.run(app, seconds=2 * 60)
    assert sorted(mail["To"] for mail in postbox.mails) == ["ada@example.com", "bob@example.com"]
    (schedule,) = service.client.get_queue("letters").schedules or []
    assert schedule.name == weekly.name


def test_the_guides_command_enqueues_a_mail(service: MemoryService, postbox: Postbox) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "tutorials" / "examples.md").read_text()
    (queue, name, args) = re.findall(r"headrace enqueue (\S+) --task (\S+) '(.*)'", guide)[0]
    service.run(app)  # a worker makes the queue
    service.client.enqueue(queue, {"task": name, "args": json.loads(args)})
    service.run(app)
    assert [mail["To"] for mail in postbox.mails] == ["ada@example.com"]
