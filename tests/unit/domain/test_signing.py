"""What goes to targets is signed by the Standard Webhooks specification, and can be trusted."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from headrace import webhooks
from headrace.domain.push_messages import derived_secret, signature, signing_generations
from headrace.webhooks import WebhookInvalid

CREATED = datetime(2031, 5, 4, tzinfo=UTC)
SECRET = derived_secret(b"s" * 32, "mail", 0, CREATED)
OTHER = derived_secret(b"s" * 32, "mail", 1, CREATED)
NOW = 1_800_000_000


def headers(body: bytes, *secrets: str, at: int = NOW, message_id: str = "tsk_1") -> dict[str, str]:
    signed = signature(secrets or [SECRET], message_id=message_id, timestamp=at, body=body)
    return {"Webhook-Id": message_id, "webhook-timestamp": str(at), "WEBHOOK-SIGNATURE": signed}


def clock(at: float = NOW) -> Callable[[], float]:
    return lambda: at


@given(st.text(), st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1))
def test_the_library_of_the_specification_takes_our_signatures(body: str, name: str) -> None:
    now = int(time.time())
    Webhook(SECRET).verify(body, headers(body.encode(), at=now, message_id=name), json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(body, headers(body.encode(), at=now), json_parse=False)


def test_the_example_of_the_specification() -> None:
    signed = signature(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1_614_265_330,
        body=b'{"test": 2432232314}',
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("apart", [-301, 301, 10**9])
def test_what_was_signed_long_ago_or_ahead_is_refused(apart: int) -> None:
    with pytest.raises(WebhookInvalid, match="300 s"):
        webhooks.verify(b"{}", headers(b"{}"), SECRET, clock=clock(NOW + apart))


@pytest.mark.parametrize(
    "changed",
    [
        {"Webhook-Id": "tsk_2"},
        {"webhook-timestamp": str(NOW + 1)},
        {"WEBHOOK-SIGNATURE": ""},
        {"WEBHOOK-SIGNATURE": "v1,%%%"},
        {"WEBHOOK-SIGNATURE": "v1,é \udce9"},
        {"WEBHOOK-SIGNATURE": "v1,a,b v2,c"},
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": "1e9"},
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": "١٢٣"},
    ],
)
def test_any_header_that_is_not_as_signed_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(WebhookInvalid):
        webhooks.verify(b"{}", headers(b"{}") | changed, SECRET, clock=clock())


def test_secrets_differ_by_stack_queue_its_creation_and_generation() -> None:
    made = {
        derived_secret(stack, queue, generation, created_at)
        for created_at in (CREATED, CREATED + timedelta(microseconds=1))
        for stack in (b"a" * 32, b"b" * 32)
        for queue in ("mail", "mail2", "2 mail")
        for generation in (0, 1, 12)
    }
    assert len(made) == 36
    assert derived_secret(b"s" * 32, "mail", 0, CREATED) == SECRET


def test_the_secret_before_a_rotation_signs_for_a_day_more() -> None:
    now = datetime.fromtimestamp(NOW, UTC)
    day = timedelta(hours=24)
    assert signing_generations(0, None, now) == (0,)
    assert signing_generations(3, now, now) == (3, 2)
    assert signing_generations(3, now, now + day - timedelta(seconds=1)) == (3, 2)
    assert signing_generations(3, now, now + day) == (3,)
