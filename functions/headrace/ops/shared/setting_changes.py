"""Which settings of a queue a change has changed, as the audit keeps them: no secrets, bounded."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from headrace.domain.push import MASK
from headrace.domain.queue import QueueSettings
from headrace.store.records import body_of

TOLD: Final = ("on_end.queue", "alerts.queue")
"""Those that name another queue, which not everybody may know of."""

_HEADERS: Final = "target.headers."
_FIELDS: Final = 32  # of one change that are kept
_VALUE: Final = 200  # characters of one
_OTHER: Final = f"{MASK} (another)"

Values: TypeAlias = dict[str, Any]


def changed_settings(before: QueueSettings, after: QueueSettings) -> tuple[Values, Values]:
    """Return what the settings that differ were and are, by their paths; None: there was none.

    The values of a target's headers are masked, long ones are cut, and of many fields only the
    first by name are kept.
    """
    was, now = dict(_flat(body_of(before))), dict(_flat(body_of(after)))
    names = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))[:_FIELDS]
    old, new = ({name: _kept(name, one.get(name)) for name in names} for one in (was, now))
    for name in names:
        if old[name] == new[name]:  # masked, or cut before they differ
            new[name] = _OTHER if name.startswith(_HEADERS) else f"{new[name]} (another)"
    return old, new


def _flat(settings: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        elif value not in (None, "", []):
            yield f"{path}{name}", value


def _kept(name: str, value: object) -> object:
    if value is not None and name.startswith(_HEADERS):
        return MASK
    text = str(value)
    return value if len(text) <= _VALUE else f"{text[:_VALUE]}…"
