"""Files of series: what is written is read, by the hour or by the minute, and always the same."""

import gzip
import json
import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.history.proof import FINDINGS, conditions
from headrace.history.series import (
    DAY,
    HOUR,
    Minutes,
    Unreadable,
    content_of,
    happened,
    minute_of,
)
from headrace.history.tally import COUNTED, Activity, Histogram
from headrace.spark.lake.schemas import DAY as DATE_COLUMN
from headrace.spark.lake.schemas import TABLES, Table, markdown

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
@settings(max_examples=40)
def test_minutes_are_read_unchanged_and_hours_as_their_sums(minutes: Minutes) -> None:
    content = content_of(minutes)

    assert read(content, hours=False) == minutes
    sums: dict[int, Activity] = {}
    for minute, activity in minutes.items():
        sums.setdefault(minute // HOUR * HOUR, Activity()).merge(activity)
    assert read(content, hours=True) == sums
    # The same minutes are the same bytes in whatever order.
    assert content_of(dict(sorted(minutes.items(), reverse=True))) == content


def zipped(body: object) -> bytes:
    return gzip.compress(json.dumps(body).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        zipped([]),
        zipped({"format": 2, "hours": {}}),
        zipped({"format": 1, "hours": {"1": {"all": "what"}}}),
        content_of({FIRST: Activity()})[:-9],
    ],
    ids=range(5),  # gzip notes the time: as a name the content would be another each time
)
def test_a_file_that_is_no_series_is_refused(content: bytes) -> None:
    with pytest.raises(Unreadable):
        read(content, hours=True)


# -- the tables of the lake in the docs ------------------------------------------------------------

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"
TABLES_PAGE = (REFERENCE / "lake-tables.md").read_text()
PROOF_PAGE = (REFERENCE / "lake-proof.md").read_text()


def test_the_docs_have_every_table_as_it_is_declared() -> None:
    assert markdown() in TABLES_PAGE


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_tables_key_and_order_are_columns_of_it(table: Table) -> None:
    names = [column.name for column in table.columns]

    assert len(set(names)) == len(names)
    assert {*table.key, *table.order, DATE_COLUMN} <= set(names)


def test_the_docs_name_every_finding_of_the_proof() -> None:
    kinds = {*conditions(second="1")}

    named = set(re.findall(r"^\| `([a-z_]+)` \|", PROOF_PAGE, re.MULTILINE))
    assert named == kinds | {"overdue", "reused_lease", "lost"}
    for kind, says in FINDINGS.items():
        assert f"| `{kind}` | {says}" in PROOF_PAGE
    assert named == set(FINDINGS)
