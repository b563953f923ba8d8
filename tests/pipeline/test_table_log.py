"""Logs of tables: files are replaced in one step, and of two writers the second is refused.

Without Spark: the tests make the files by hand, as Spark would name them.
"""

import io
import os
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

from headrace.domain.errors import Conflict
from headrace.spark.lake.delta import DeltaLog
from headrace.spark.lake.iceberg import IcebergLog, namespace_of
from headrace.spark.lake.schemas import FAILURES, TASKS, Table
from headrace.spark.lake.table_log import DataFile, log_of, name_of_write
from headrace.store.lake import lake_at
from infra import PROJECT_ROOT
from infra.template import SPARK, load_template

DAY, NEXT = date(2026, 11, 21), date(2026, 11, 22)
LONG_AGO = datetime(2026, 11, 20, tzinfo=UTC)
FORMATS = ("iceberg", "delta")
GUIDE = PROJECT_ROOT / "docs" / "how-to" / "read-the-lake.md"
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

    def file(self, n: int, day: date = DAY) -> DataFile:
        row = {"queue": "mail", "n": n, "dt": day, "task_ids": ["t1"]}
        return self.file_of(FAILURES, [row], day)

    def file_of(self, table: Table, rows: list[dict[str, Any]], day: date) -> DataFile:
        write = name_of_write(self.at, uuid.uuid4().hex)
        folder = f"{self.address}/tables/{table.name}/data/{write}/day={day}"
        schema = pa.schema([(one.name, TYPES[one.type]) for one in table.columns])
        content = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows, schema=schema), content)
        path, size = f"{folder}/part-0.parquet", content.tell()
        lake_at(self.address).put(path.removeprefix(f"{self.address}/"), content.getvalue())
        return DataFile(path, size)


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the place of a lake in a folder, for Iceberg with a catalog in a file of SQLite."""
    if form == "iceberg":
        monkeypatch.setenv("PYICEBERG_CATALOG__HEADRACE__TYPE", "sql")
        monkeypatch.setenv("PYICEBERG_CATALOG__HEADRACE__URI", f"sqlite:///{tmp_path}/catalog.db")
    return str(tmp_path / "lake")


@pytest.fixture
def writer(place: str) -> Writer:
    return Writer(place)


def read(form: str, address: str) -> list[int]:
    """Return what a stranger reads who knows the format, and nothing of us."""
    if form == "iceberg":
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 (an extra)

        uri = os.environ["PYICEBERG_CATALOG__HEADRACE__URI"]
        catalog = load_catalog("headrace", type="sql", uri=uri)
        rows = catalog.load_table("headrace.failures").scan().to_arrow()
    else:
        import polars as pl  # noqa: PLC0415 (likewise)

        rows = pl.read_delta(f"{address}/tables/failures").to_arrow()
    return sorted(rows["n"].to_pylist())


def test_files_take_the_place_of_others_in_one_step(form: str, place: str, writer: Writer) -> None:
    one = log_of(place)
    assert one.files(FAILURES) == []
    first, second = writer.file(1), writer.file(2)
    other_day = writer.file(3, NEXT)
    one.replace(FAILURES, [], [first, second, other_day])
    assert read(form, place) == [1, 2, 3]
    assert one.files(FAILURES) == sorted([first, second, other_day])
    assert [file.day for file in one.files(FAILURES, NEXT)] == [NEXT]

    one.replace(FAILURES, [first], [writer.file(10)])
    assert read(form, place) == [2, 3, 10]
    one.replace(FAILURES, [second], [])
    assert read(form, place) == [3, 10]


def test_of_two_that_write_at_once_the_second_is_refused_by_name(
    form: str, place: str, writer: Writer
) -> None:
    log_of(place).replace(FAILURES, [], [writer.file(1)])
    one, other = log_of(place).pinned(), log_of(place).pinned()
    old = one.files(FAILURES)
    one.replace(FAILURES, old, [writer.file(2)])
    with pytest.raises(Conflict, match=r"another job has written the table failures") as refused:
        other.replace(FAILURES, other.files(FAILURES), [writer.file(3)])
    assert "\n" not in str(refused.value)
    assert read(form, place) == [2]
    one.replace(FAILURES, one.files(FAILURES), [writer.file(4)])  # it knows its own writes
    assert read(form, place) == [4]


def test_files_are_removed_once_no_version_that_is_kept_has_them(
    form: str, place: str, writer: Writer
) -> None:
    one = log_of(place)
    one.replace(FAILURES, [], [old := writer.file(1)])
    one.replace(FAILURES, [old], [new := writer.file(2)])
    one.remove_versions(FAILURES, datetime.now(UTC) - timedelta(days=3))
    assert Path(old.path).exists()
    one.remove_versions(FAILURES, datetime.now(UTC))
    assert (Path(old.path).exists(), Path(new.path).exists()) == (False, True)
    assert read(form, place) == [2]


def test_a_folder_has_delta_and_a_catalog_iceberg(form: str, place: str) -> None:
    assert isinstance(log_of(place), IcebergLog if form == "iceberg" else DeltaLog)
    assert log_of(place).files(FAILURES) == []
    assert not Path(place).exists()  # to look at a lake makes none


def test_duckdb_and_polars_read_it_as_the_guide_shows(
    form: str, place: str, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # it warns that it could be faster
    outcomes = ("succeeded", "dead", "succeeded")
    rows = [
        {"task_id": f"t{number}", "version": 3, "outcome": outcome, "dt": DAY}
        for number, outcome in enumerate(outcomes)
    ]
    log_of(place).replace(TASKS, [], [writer.file_of(TASKS, rows, DAY)])
    section = GUIDE.read_text().partition("## Read the tables")[2].partition("\n## ")[0]
    shown = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (code,) = [one for one in shown if ("pyiceberg" in one) == (form == "iceberg")]

    names: dict[str, object] = {}
    code = code.replace(".headrace/lake", place).replace("headrace_my_lake", "headrace")
    own = f'type="sql", uri="{os.environ.get("PYICEBERG_CATALOG__HEADRACE__URI")}"'
    exec(code.replace('type="glue"', own), names)  # noqa: S102 (the guide's own)

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
    """Give the URL of a server in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


class TestInS3:
    """Against an S3 and a Data Catalog of moto's, over HTTP."""

    @pytest.fixture
    def place(self, aws: str, monkeypatch: pytest.MonkeyPatch) -> str:
        import boto3  # noqa: PLC0415 (with moto only)

        settings = {
            "AWS_ENDPOINT_URL": aws,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="history")
        return "s3://history/headrace"

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
        self, place: str, asked_of_glue: set[str]
    ) -> None:
        writer, one = Writer(place), log_of(place)
        one.replace(FAILURES, [], [first := writer.file(1)])
        held, other = log_of(place).pinned(), log_of(place).pinned()
        held.replace(FAILURES, [first], [second := writer.file(2)])
        with pytest.raises(Conflict):
            other.replace(FAILURES, [first], [writer.file(3)])
        assert log_of(place).files(FAILURES) == [second]
        (role,) = load_template(SPARK)["Resources"]["Role"]["Properties"]["Policies"]
        (may,) = (
            one["Action"]
            for one in role["PolicyDocument"]["Statement"]
            if one.get("Sid") == "Catalog"
        )
        assert asked_of_glue == set(may)


def test_the_stacks_lake_has_the_database_that_its_role_may_write() -> None:
    assert namespace_of("s3://headrace-lake-1a2b3c") == ("headrace_headrace_lake_1a2b3c",)
