"""What a buffer hands out to be written."""

import json

from headrace.domain.batch import BatchDelta
from headrace.history.counter_buffer import Buffer, BufferedRecount


def counted_into(buffer: Buffer, member: str) -> None:
    """Count a birth and a death in everything that a buffer holds besides its tally."""
    delta = BatchDelta(created=1, live=1, born=[member], queues=["mail"], died=[member])
    buffer.add_to_batch("b", delta, watch_from=1, failure_known=True)
    buffer.batches["b"].revived.append(member)
    recount = buffer.recounts.setdefault("mail", BufferedRecount("r"))
    recount.fresh[0] += 1
    recount.add_fault("boom", 1, dead=True)


def test_what_was_written_is_not_changed_by_what_is_counted_later() -> None:
    buffer = Buffer(0)
    counted_into(buffer, "tsk_a")
    body = buffer.body()
    written = json.dumps(body)

    counted_into(buffer, "tsk_b")
    buffer.batches["b"].born.clear()

    assert json.dumps(body) == written
