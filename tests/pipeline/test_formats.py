"""Logs of tables: what is replaced is replaced at once, and of two writers one is refused.

Without Spark: the files are made by hand, as Spark would name them.
"""

import io
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.client import BaseClient
from pyarrow import parquet

from headrace.domain.errors import Conflict, InvalidRequest
from headrace.spark.lake.formats import FORMAT, Format, chosen, format_of, log_at, log_of
from headrace.spark.lake.formats.base import DataFile, TableLog, name_of_write
from headrace.spark.lake.formats.iceberg import namespace_of
from headrace.spark.lake.schemas import FAILURES, TASKS, Table
from headrace.store.lake import FolderLake, lake_at
from infra import PROJECT_ROOT
from infra.template import load_template

DAY, NEXT = date(2026, 11, 21), date(2026, 11, 22)
LONG_AGO = datetime(2026, 11, 20, tzinfo=UTC)
FORMATS: tuple[Format, ...] = ("iceberg", "delta")
GUIDE = PROJECT_ROOT / "docs" / "lake.md"
TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "array<string>": pa.list_(pa.string()),
}


class Writer:
    """Writes files of a table; those of ``failures`` say in ``n`` which they are."""

    def __init__(self, address: str, *, at: datetime = LONG_AGO) -> None:
        self.address = address
        self.at = at

    def file(self, n: int, day: date = DAY, hour: int | None = None) -> DataFile:
        row = {"queue": "mail", "n": n, "dt": day, "task_ids": ["t1"]}
        return self.file_of(FAILURES, [row], day, hour)

    def file_of(
        self, table: Table, rows: list[dict[str, Any]], day: date, hour: int | None = None
    ) -> DataFile:
        write = name_of_write(self.at, uuid.uuid4().hex)
        folder = f"{self.address}/tables/{table.name}/data/{write}/day={day}"
        if hour is not None:
            folder += f"/hh={hour}"
        schema = pa.schema([(one.name, TYPES[one.type]) for one in table.columns])
        content = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows, schema=schema), content)
        path, size = f"{folder}/part-0.parquet", content.tell()
        lake_at(self.address).put(path.removeprefix(f"{self.address}/"), content.getvalue())
        return DataFile(path, size)


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    one: Format = request.param
    return one


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def writer(place: str) -> Writer:
    return Writer(place)


def log(form: Format, address: str) -> TableLog:
    found = log_of(form, address)
    assert found is not None
    return found


def read(form: Format, address: str) -> list[int]:
    """Return what a stranger reads who knows the format, and nothing of us."""
    if form == "iceberg":
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 (an extra)

        tables = f"{address}/tables"
        catalog = load_catalog("headrace", type="sql", uri=f"sqlite:///{tables}/iceberg.db")
        rows = catalog.load_table("headrace.failures").scan().to_arrow()
    else:
        import polars as pl  # noqa: PLC0415 (likewise)

        rows = pl.read_delta(f"{address}/tables/failures").to_arrow()
    return sorted(rows["n"].to_pylist())


def test_files_take_the_place_of_others_in_one_step(
    form: Format, place: str, writer: Writer
) -> None:
    one = log(form, place)
    assert one.files(FAILURES) == []
    first, second = writer.file(1, hour=0), writer.file(2, hour=1)
    other_day = writer.file(3, NEXT)
    one.replace(FAILURES, [], [first, second, other_day])
    assert read(form, place) == [1, 2, 3]
    assert one.files(FAILURES) == sorted([first, second, other_day])
    assert [(file.day, file.hour) for file in one.files(FAILURES, NEXT)] == [(NEXT, None)]

    one.replace(FAILURES, [first], [writer.file(10, hour=0)])
    assert read(form, place) == [2, 3, 10]
    one.replace(FAILURES, [second], [])
    assert read(form, place) == [3, 10]


def test_of_two_that_write_at_once_the_second_is_refused_by_name(
    form: Format, place: str, writer: Writer
) -> None:
    log(form, place).replace(FAILURES, [], [writer.file(1)])
    one, other = log(form, place).pinned(), log(form, place).pinned()
    old = one.files(FAILURES)
    one.replace(FAILURES, old, [writer.file(2)])
    with pytest.raises(Conflict, match=r"another job has written the table failures") as refused:
        other.replace(FAILURES, other.files(FAILURES), [writer.file(3)])
    assert "\n" not in str(refused.value)
    assert read(form, place) == [2]
    one.replace(FAILURES, one.files(FAILURES), [writer.file(4)])  # it knows its own writes
    assert read(form, place) == [4]


def test_a_reader_goes_on_with_what_it_found_until_nobody_needs_that(
    form: Format, place: str, writer: Writer
) -> None:
    one = log(form, place)
    old, left = writer.file(1), writer.file(99)
    one.replace(FAILURES, [], [old])
    one.replace(FAILURES, [old], [new := writer.file(2)])
    every = {old.path, new.path, left.path}
    assert all(Path(path).exists() for path in every)
    kept = one.unneeded(FAILURES, datetime.now(UTC) - timedelta(days=3), every)
    assert old.path not in kept
    assert new.path not in kept
    gone = one.unneeded(FAILURES, datetime.now(UTC), every)
    assert new.path not in gone
    assert old.path in gone
    assert read(form, place) == [2]


def test_the_format_is_chosen_once(tmp_path: Path) -> None:
    lake, address = FolderLake(tmp_path), str(tmp_path)
    assert format_of(lake) is None
    assert log_at(lake, address) is None
    with pytest.raises(InvalidRequest, match="format must be one of parquet, iceberg, delta"):
        chosen(lake, address, "csv")
    assert chosen(lake, address, "iceberg") == "iceberg"
    assert chosen(lake, address, None) == "iceberg"
    with pytest.raises(InvalidRequest, match="the tables of this lake are iceberg; for delta"):
        chosen(lake, address, "delta")


def test_a_folder_has_parquet_and_s3_has_iceberg(tmp_path: Path) -> None:
    lake = FolderLake(tmp_path)
    assert chosen(lake, str(tmp_path), None) == "parquet"
    (tmp_path / FORMAT).unlink()
    assert chosen(lake, "s3://history/headrace", None) == "iceberg"


def test_duckdb_and_polars_read_it_as_the_guide_shows(
    form: Format, place: str, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # it warns that it could be faster
    outcomes = ("succeeded", "dead", "succeeded")
    rows = [
        {"task_id": f"t{number}", "version": 3, "outcome": outcome, "dt": DAY}
        for number, outcome in enumerate(outcomes)
    ]
    log(form, place).replace(TASKS, [], [writer.file_of(TASKS, rows, DAY)])
    section = GUIDE.read_text().partition("## Who else reads the tables")[2].partition("\n## ")[0]
    shown = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (code,) = [one for one in shown if ("pyiceberg" in one) == (form == "iceberg")]

    names: dict[str, object] = {}
    exec(code.replace(".headrace/lake", place), names)  # noqa: S102 (the guide's own)

    counts = [value for name, value in names.items() if name.startswith("succeeded")]
    assert counts == ([2, 2] if form == "iceberg" else [2])


SERVER = """
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
server._thread.join()
"""


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """Give the URL of a server in a process of its own: deltalake waits for it with the GIL."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


class TestInS3:
    """Against an S3 and a Glue of moto's, over HTTP."""

    @pytest.fixture
    def place(self, aws: str, form: Format, monkeypatch: pytest.MonkeyPatch) -> str:
        import boto3  # noqa: PLC0415 (with moto only)

        settings = {
            "AWS_ENDPOINT_URL": aws,
            "AWS_ALLOW_HTTP": "true",  # asked by deltalake
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=form)
        return f"s3://{form}/headrace"

    @pytest.fixture
    def asked_of_glue(self, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """Give what Glue is asked from now on, in the words of a policy."""
        asked: set[str] = set()
        call = BaseClient._make_api_call  # noqa: SLF001 (every client's calls pass here)

        def noted(client: BaseClient, operation: str, given: dict[str, Any]) -> Any:
            if client.meta.service_model.service_name == "glue":
                asked.add(f"glue:{operation}")
            return call(client, operation, given)

        monkeypatch.setattr(BaseClient, "_make_api_call", noted)
        return asked

    def test_a_table_is_written_and_the_second_writer_refused(
        self, place: str, form: Format, asked_of_glue: set[str]
    ) -> None:
        writer, one = Writer(place), log(form, place)
        one.replace(FAILURES, [], [first := writer.file(1)])
        held, other = log(form, place).pinned(), log(form, place).pinned()
        held.replace(FAILURES, [first], [second := writer.file(2)])
        with pytest.raises(Conflict):
            other.replace(FAILURES, [first], [writer.file(3)])
        assert log(form, place).files(FAILURES) == [second]
        (role,) = load_template()["Resources"]["SparkRole"]["Properties"]["Policies"]
        (may,) = (
            one["Action"]
            for one in role["PolicyDocument"]["Statement"]
            if one.get("Sid") == "Catalog"
        )
        assert asked_of_glue == (set(may) if form == "iceberg" else set())


def test_the_stacks_lake_has_the_database_that_its_role_may_write() -> None:
    assert namespace_of("s3://headrace-lake-1a2b3c") == ("headrace_headrace_lake_1a2b3c",)
