"""Files of series: what is written is read, by the hour or by the minute, and always the same."""

import gzip
import json
import random
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.history.series import (
    DAY,
    HOUR,
    Illegible,
    Minutes,
    Span,
    content_of,
    day_of,
    file_of,
    happened,
    minute_of,
)
from headrace.history.tally import COUNTED, Activity, Histogram

TODAY = date(2026, 11, 21)
FIRST = minute_of(TODAY)

histograms = st.builds(
    Histogram, st.dictionaries(st.integers(-1, 700), st.integers(1, 10**6), max_size=4)
)
activities = st.builds(
    Activity,
    st.lists(st.integers(0, 10**6), min_size=len(COUNTED), max_size=len(COUNTED)),
    histograms,
    histograms,
    st.integers(-(10**6), 10**6),
)
days = st.dictionaries(st.integers(FIRST, FIRST + DAY - 1), activities, min_size=1, max_size=12)


def read(content: bytes, *, hours: bool) -> dict[int, Activity]:
    return dict(happened(content, lambda *_: hours))


@given(days)
def test_minutes_come_back_as_they_were_and_hours_as_their_sums(minutes: Minutes) -> None:
    content = content_of(minutes)

    assert read(content, hours=False) == minutes
    sums: dict[int, Activity] = {}
    for minute, activity in minutes.items():
        sums.setdefault(minute // HOUR * HOUR, Activity()).merge(activity)
    assert read(content, hours=True) == sums


@given(days)
def test_the_same_minutes_are_the_same_bytes_in_whatever_order(minutes: Minutes) -> None:
    assert content_of(dict(sorted(minutes.items(), reverse=True))) == content_of(minutes)


def test_an_hour_is_asked_for_by_its_first_and_last_minute() -> None:
    requested = []

    def together(first: int, last: int) -> bool:
        requested.append((first - FIRST, last - FIRST))
        return first == FIRST

    content = content_of({FIRST + minute: Activity() for minute in (1, 59, 61)})

    assert [minute - FIRST for minute, _ in happened(content, together)] == [0, 61]
    assert requested == [(0, 59), (60, 119)]


def test_the_file_of_a_busy_day_stays_small() -> None:
    chance = random.Random(7)

    def durations() -> Histogram:
        return Histogram({bucket: chance.randint(1, 400) for bucket in range(200, 260)})

    busy = {
        FIRST + n: Activity([n] * len(COUNTED), durations(), durations(), n) for n in range(DAY)
    }

    assert 200_000 < len(content_of(busy)) < 400_000


def test_days_and_minutes_belong_together() -> None:
    assert [day_of(FIRST), day_of(FIRST + DAY - 1)] == [TODAY, TODAY]
    assert day_of(FIRST - 1) == date(2026, 11, 20)
    assert file_of("ngsi.notify", TODAY) == "series/queue=ngsi.notify/dt=2026-11-21.json.gz"
    span = Span(TODAY, date(2026, 11, 23))
    assert Span.of(span.text()) == span
    assert span.minutes == range(FIRST, FIRST + 2 * DAY)


def zipped(body: object) -> bytes:
    return gzip.compress(json.dumps(body).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no gzip",
        zipped([]),
        zipped({}),
        zipped({"format": 2, "hours": {}}),
        zipped({"format": 1, "hours": []}),
        zipped({"format": 1, "hours": {"x": {}}}),
        zipped({"format": 1, "hours": {"1": {"all": "what"}}}),
        zipped({"format": 1, "hours": {"1": {"all": None}}}),
        content_of({FIRST: Activity()})[:-9],
    ],
    ids=range(10),  # gzip notes the time: as a name the content would be another each time
)
def test_what_is_no_series_is_refused(content: bytes) -> None:
    with pytest.raises(Illegible):
        read(content, hours=True)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"begin": "today", "end": "2026-11-21"}'])
def test_what_is_no_span_is_refused(text: bytes) -> None:
    with pytest.raises(Illegible):
        Span.of(text)


def test_what_was_written_before_cancels_were_counted_has_none() -> None:
    before = Activity.of("5 4 3 2 1|||0")

    assert before.numbers == [5, 4, 3, 2, 1, 0]
    before.merge(Activity())
