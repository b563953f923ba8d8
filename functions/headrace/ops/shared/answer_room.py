"""How much one answer can hold: as many bytes as the contract says, and as Lambda lets out."""

import json
from dataclasses import dataclass
from typing import Final

from headrace.domain.limits import ANSWER_BYTES, SENT_BYTES, sent_bytes, utf8_bytes
from headrace.domain.task import Task

# What a task has besides its texts, generously: the names of its fields, times, ids, its lease.
_TASK: Final = 2048
_ERROR: Final = 192
_HOP: Final = 64

_dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(slots=True)
class AnswerRoom:
    """The room that is left in one answer, in bytes: of its text, and of that text as it goes out.

    The second counts what Lambda adds when it puts the text into JSON once more: a quote or a
    backslash takes two bytes then.
    """

    text: int = ANSWER_BYTES
    sent: int = SENT_BYTES

    def takes(self, *texts: str, besides: int = 0) -> bool:
        """Take *texts* and *besides* bytes more out of the room; tell whether they fit.

        What does not fit ends the answer: the room has none left for anything after it.
        """
        self.text -= sum(map(utf8_bytes, texts)) + besides
        self.sent -= sum(map(sent_bytes, texts)) + besides
        return self.text >= 0 and self.sent >= 0

    def takes_task(self, task: Task) -> bool:
        """Do so for *task*, by what it takes at most."""
        errors = [[error.worker, error.type, error.message, error.detail] for error in task.errors]
        hops = [hop.queue for hop in task.trail]
        names = [dict(task.tags), task.dedupe_key, task.worker, task.schedule]
        return self.takes(
            *(text for text in (task.payload, task.result, task.progress) if text),
            _dumps([names, errors, hops]),
            besides=_TASK + _ERROR * len(errors) + _HOP * len(hops),
        )
