"""The two stations of the pipeline.  ``headrace station start`` finds them in this module.

They take the place of the handlers of ``examples.ngsi.app``, task by task: queues and payloads are
the same, so a handler may split what a station loads.  ``NGSI_READINGS`` names the folder of the
table (readings).
"""

import os
from dataclasses import asdict

from examples.ngsi.app import ENTITIES_QUEUE, NOTIFY_QUEUE
from examples.ngsi.ngsi import Unreadable, split
from examples.ngsi.spark.table import Loading
from headrace.spark import Station
from headrace.spark.lake.frames import absolute
from headrace.spark.stations.outcomes import Fail, Move, Outcome, Taken, guard


def split_up(task: Taken) -> Outcome:
    """Send a task on with the rows of its notification; one that cannot be read ends here."""
    try:
        rows = split(task.payload, task.tags, task.created_at)
    except Unreadable as error:
        return Fail(str(error))
    return Move([asdict(row) for row in rows])


def loading_into(folder: str) -> Station:
    """Return the station that loads rows into the table in *folder*, a path as Spark knows it."""
    return Station(queue=ENTITIES_QUEUE, transform=Loading(absolute(folder)))


splitting = Station(queue=NOTIFY_QUEUE, to=ENTITIES_QUEUE, transform=guard()(split_up))
loading = loading_into(os.environ.get("NGSI_READINGS", "readings"))
