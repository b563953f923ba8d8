"""What the demo does to its first station, so that there is something to see."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from examples.ngsi.ngsi import CORRELATOR_TAG
from examples.ngsi.spark.stations import split_up
from examples.ngsi.trouble import ON_PURPOSE, fails_once, taken
from headrace.spark.stations.outcomes import Outcome, Retry, Taken


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The first station's function: one task in ten fails once, and one kills its process once."""

    token: Path
    fatal: str
    """Correlator of the notification whose task kills whoever has it and finds the token."""

    def __call__(self, task: Taken) -> Outcome:
        """The outcome of *task*."""
        if task.tags.get(CORRELATOR_TAG) == self.fatal and taken(self.token):
            os.kill(os.getpid(), signal.SIGKILL)
        if task.attempts == 1 and fails_once(task.id):
            return Retry(ON_PURPOSE)
        return split_up(task)
