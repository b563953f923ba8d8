"""The NGSI pipeline: `headrace work examples.ngsi.app:app`.

``POST /v2/notify`` puts what a context broker sends into ``ngsi.notify``.  There each notification
is split into rows; its task moves on to ``ngsi.entities`` with the rows as its payload, and there
they are written to SQLite, into the file that ``NGSI_ROWS`` names (rows.sqlite).
"""

import os
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from examples.ngsi.ngsi import Row, Unreadable, parse
from examples.ngsi.rows_file import RowsFile
from headrace import App, Context, InvalidRequest, Reject

NOTIFY_QUEUE = "ngsi.notify"
ENTITIES_QUEUE = "ngsi.entities"
WITHOUT_VALUE_TAG = "without-value"
"""How many attributes of a notification came without a value that fits; no tag: none did."""

app = App()


@app.handler(queue=NOTIFY_QUEUE)
def split_up(ctx: Context, notification: Any) -> None:  # noqa: ANN401 (whatever was sent)
    """Send the task on with the rows of its notification; one that cannot be read ends here."""
    try:
        parsed = parse(notification, ctx.tags, ctx.task.created_at)
        tags = None
        if parsed.without_value:
            tags = {**ctx.tags, WITHOUT_VALUE_TAG: str(len(parsed.without_value))}
        ctx.move(ENTITIES_QUEUE, parsed.rows, tags=tags)
    except (Unreadable, InvalidRequest) as error:  # the latter: the rows are too large a payload
        raise Reject(str(error)) from error


@app.handler(queue=ENTITIES_QUEUE)
def load(ctx: Context, rows: list[Row]) -> dict[str, int]:
    """Write the rows; those that an attempt without a report has left are not written twice."""
    result = asdict(rows_file().write(ctx.id, rows))
    without_value = ctx.tags.get(WITHOUT_VALUE_TAG)
    return {**result, "without_value": int(without_value)} if without_value else result


@cache
def rows_file() -> RowsFile:
    """Return the file, opened when it is first needed."""
    return RowsFile(Path(os.environ.get("NGSI_ROWS", "rows.sqlite")))
