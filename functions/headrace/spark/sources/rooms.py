"""How many rows of a read each shard gives."""

from collections.abc import Sequence
from zlib import crc32


def even_rooms(rows: int, shards: int, group: str) -> tuple[int, ...]:
    """Share *rows* out over *shards*.

    Where they do not divide evenly, some shards give one more, in turn: by the group, so that none
    of them starves.
    """
    each, more = divmod(rows, shards)
    turn = crc32(group.encode())
    return tuple(each + ((shard + turn) % shards < more) for shard in range(shards))


def rooms_by(rows: int, due: Sequence[int], group: str) -> tuple[int, ...]:
    """Share *rows* out over shards of which so many tasks are *due*.

    Evenly, but what one shard lacks those give that have more, so that a read is of as many rows as
    it may be.
    """
    rooms = even_rooms(rows, len(due), group)
    less = [max(0, room - number) for room, number in zip(rooms, due, strict=True)]
    more = [max(0, number - room) for room, number in zip(rooms, due, strict=True)]
    spare = min(sum(less), sum(more))
    taken, given = _spread(spare, less), _spread(spare, more)
    return tuple(room - out + into for room, out, into in zip(rooms, taken, given, strict=True))


def _spread(number: int, most: Sequence[int]) -> list[int]:
    """Divide *number* into parts as even as can be, none larger than *most* says."""
    parts = [0] * len(most)
    for done, place in enumerate(sorted(range(len(most)), key=most.__getitem__)):
        parts[place] = min(most[place], number // (len(most) - done))
        number -= parts[place]
    return parts
