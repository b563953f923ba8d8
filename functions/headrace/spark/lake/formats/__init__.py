"""In which format a lake's tables are, and who knows which files they consist of.

Spark writes Parquet files in all of them.  In ``parquet`` a table is what is in its folder; in
``iceberg`` and ``delta`` it is what a log says, which the driver writes by itself: a day is
replaced in one step, readers see the old or the new one, and of two that write at once one is
refused.  The format is chosen with the first rollup, and remembered in ``state/format.json``.
"""

import json
from importlib.util import find_spec
from typing import Final, Literal, TypeAlias, get_args

from headrace.domain.errors import InvalidRequest
from headrace.domain.offload import Lake
from headrace.spark.lake.formats.base import TableLog
from headrace.store.lake import s3_place

Format: TypeAlias = Literal["parquet", "iceberg", "delta"]

FORMAT: Final = "state/format.json"
_ROLLED_UP: Final = "state/rollup.json"
_NEEDS: Final[dict[str, str]] = {"iceberg": "pyiceberg", "delta": "deltalake"}


def format_of(lake: Lake) -> Format | None:
    """Return the format of a lake's tables; None where there are none yet."""
    text = lake.get(FORMAT)
    if text is not None:
        found: Format = json.loads(text)["format"]
        return found
    return None if lake.get(_ROLLED_UP) is None else "parquet"


def chosen(lake: Lake, address: str, wanted: str | None) -> Format:
    """Return the format of a lake's tables, and remember it if they are the first.

    Unless it is *wanted* otherwise it is Iceberg in S3, where that is installed, and Parquet in a
    folder.  Raises InvalidRequest for another format than that of the tables there are, and for one
    that is not installed.
    """
    there = format_of(lake)
    if wanted is not None and wanted not in get_args(Format):
        message = f"format must be one of {', '.join(get_args(Format))}, not {wanted!r}"
        raise InvalidRequest(message)
    if there is not None and wanted not in (None, there):
        message = (
            f"format: the tables of this lake are {there}; for {wanted}, remove its folders tables"
            " and state, then roll up again"
        )
        raise InvalidRequest(message)
    one: Format = there or _named(wanted) or _usual(address)
    _check(one)
    if lake.get(FORMAT) is None:
        lake.put(FORMAT, json.dumps({"format": one}).encode())
    return one


def log_at(lake: Lake, address: str) -> TableLog | None:
    """Return who knows the files of a lake's tables; None where the folder does.

    Raises InvalidRequest for a format that is not installed.
    """
    one = format_of(lake)
    if one is None:
        return None
    _check(one)
    return log_of(one, address)


def log_of(one: Format, address: str) -> TableLog | None:
    """Return who knows the files of tables of a format."""
    if one == "iceberg":
        from headrace.spark.lake.formats.iceberg import IcebergLog  # noqa: PLC0415 (an extra)

        return IcebergLog(address)
    if one == "delta":
        from headrace.spark.lake.formats.delta import DeltaLog  # noqa: PLC0415 (an extra)

        return DeltaLog(address)
    return None


def _named(wanted: str | None) -> Format | None:
    return next((one for one in get_args(Format) if one == wanted), None)


def _usual(address: str) -> Format:
    return "iceberg" if s3_place(address) and _installed("iceberg") else "parquet"


def _check(one: Format) -> None:
    if not _installed(one):
        message = f"format: {one} is missing: pip install 'headrace[{one}]'"
        raise InvalidRequest(message)


def _installed(one: Format) -> bool:
    return one not in _NEEDS or find_spec(_NEEDS[one]) is not None
