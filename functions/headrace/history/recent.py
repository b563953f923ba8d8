"""Numbers of the last day that stay small: by five minutes for an hour, then by the hour."""

from typing import Final

SLOT: Final = 300_000_000  # in microseconds
HOUR: Final = 12  # slots
DAY: Final = 24 * HOUR
_KEPT: Final = DAY + HOUR

Slots = dict[int, int]
"""A number for each slot of five minutes since 1970, or for the hour that begins with it."""


def add_slots(slots: Slots, more: Slots) -> None:
    """Add *more* to *slots*."""
    for slot, number in more.items():
        slots[slot] = slots.get(slot, 0) + number


def recent(slots: Slots, now: int) -> Slots:
    """Return what of *slots* is worth keeping at *now*, in microseconds since 1970.

    Hours that ended an hour ago are kept as one number, what is over a day ago is left out.
    """
    slot_now = now // SLOT
    kept: Slots = {}
    for slot, number in slots.items():
        if slot > slot_now - _KEPT:
            hour = slot - slot % HOUR
            over = hour <= slot_now - 2 * HOUR
            add_slots(kept, {hour if over else slot: number})
    return kept


def last_hour(slots: Slots, now: int) -> int:
    """Return the number of the last 55 to 60 minutes before *now*."""
    return sum(number for slot, number in slots.items() if slot > now // SLOT - HOUR)


def last_day(slots: Slots, now: int) -> int:
    """Return the number of the last 23 to 24 hours before *now*."""
    return sum(number for slot, number in slots.items() if slot > now // SLOT - DAY)


def by_five_minutes(slots: Slots, now: int) -> tuple[int, ...]:
    """Return the numbers of the last twelve slots, *now* in the last of them."""
    return tuple(slots.get(slot, 0) for slot in range(now // SLOT - HOUR + 1, now // SLOT + 1))


def by_hour(slots: Slots, now: int) -> tuple[int, ...]:
    """Return the numbers of the last 24 hours of the clock, *now* in the last of them."""
    last = now // SLOT // HOUR
    hours = dict.fromkeys(range(last - 23, last + 1), 0)
    for slot, number in slots.items():
        if slot // HOUR in hours:
            hours[slot // HOUR] += number
    return tuple(hours.values())


def text_of(slots: Slots) -> str:
    """Return *slots* as a short text."""
    return " ".join(f"{slot} {number}" for slot, number in sorted(slots.items()))


def slots_of(text: str) -> Slots:
    """Return the slots that text_of() wrote."""
    numbers = [int(word) for word in text.split()]
    return dict(zip(numbers[::2], numbers[1::2], strict=True))
