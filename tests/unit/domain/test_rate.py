"""Tokens that a process draws ahead: each is used once, and not before or after its time."""

from datetime import UTC, datetime, timedelta

from headrace.domain.rate import Piece, Rate, Share

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
RATE = Rate(10, timedelta(seconds=10))  # a token a second


def piece(tokens: int, *, start: datetime = NOON, rate: Rate = RATE) -> Piece:
    return Piece(rate.at(start), rate.at(start) + rate.length(tokens), rate)


def used(share: Share, tokens: int, now: datetime) -> int:
    return sum(one.tokens for one in share.use(tokens, now))


def test_tokens_that_were_drawn_ahead_are_used_once() -> None:
    share = Share(RATE)
    share.keep(piece(5))

    assert [used(share, 3, NOON), used(share, 3, NOON), used(share, 3, NOON)] == [3, 2, 0]


def test_tokens_are_forgotten_once_their_time_is_past() -> None:
    share = Share(RATE)
    share.keep(piece(5))

    assert used(share, 9, NOON + timedelta(seconds=3)) == 2
    assert share.pieces == []


def test_tokens_more_than_an_interval_ahead_are_kept_for_later() -> None:
    share = Share(RATE)
    share.keep(piece(4, start=NOON + timedelta(seconds=8)))

    assert used(share, 9, NOON) == 2
    assert used(share, 9, NOON + timedelta(seconds=5)) == 2


def test_tokens_of_another_rate_are_not_kept() -> None:
    share = Share(RATE)
    share.keep(piece(5, rate=Rate(5, timedelta(seconds=10))))

    assert used(share, 9, NOON) == 0
