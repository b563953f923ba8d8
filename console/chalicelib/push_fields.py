"""Fields of a queue's target, its notify queue and its alert queue.

The values of a target's headers are masked in the form, for every key.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headrace.domain.errors import InvalidRequest
from headrace.domain.push import MASK, Target, headers_faults
from headrace.domain.queue_settings import TYPES, AlertSettings, OnEnd

from .typed_settings import Setting, Typed, rows_of, texts_in

_STATES: Final = {
    " and ".join(state.lower() for state in states): states
    for states in (tuple(TYPES), *((state,) for state in TYPES))
}

TARGET: Final = (
    Setting("target_url", "URL", "The service sends the tasks there. Empty: workers take them.",
            width="l"),
    Setting("target_lambda", "Or ARN of a Lambda function", width="l"),
    *rows_of(Target),
    Setting("target_headers", "Headers",
            f"One per line, as Name: value; {MASK} keeps the value.", "textarea", width="l"),
)  # fmt: skip
ON_END: Final = (
    Setting("told_queue", "Notify queue", f"Empty: none. {MASK}: a queue that this key cannot see.",
            width="l"),
    Setting("told_states", "Of tasks that are", kind="select",
            options=tuple((text, text) for text in _STATES)),
)  # fmt: skip

ALERTS: Final = (
    Setting("alert_queue", "Alert queue", f"Empty: none. {MASK}: a queue that this key cannot see.",
            width="l"),
    *(replace(one, hint=f"{one.hint} Empty: no alert.") for one in rows_of(AlertSettings)),
)  # fmt: skip

FIELDS: Final = {
    "alerts.queue": "alert_queue",
    "target": "target_url",
    "target.url": "target_url",
    "target.lambda": "target_lambda",
    "target.headers": "target_headers",
    "on_end.queue": "told_queue",
    "groups.mode": "groups_mode",
    "groups.on_dead": "groups_on_dead",
}
"""The form field for each field of the API that the use case checks."""


def push_texts(target: Target | None, on_end: OnEnd | None) -> dict[str, str]:
    """Return the text of each field; the notify queue is masked unless *on_end* names it."""
    shown = Target() if target is None else target
    told = OnEnd("") if on_end is None else on_end
    return {
        "target_url": shown.url or "",
        "target_lambda": shown.function or "",
        **texts_in(shown),
        "target_headers": "\n".join(f"{name}: {MASK}" for name in shown.headers),
        "told_queue": MASK if told.queue is None else told.queue,
        "told_states": next(text for text, of in _STATES.items() if set(of) == set(told.states)),
    }


def alert_texts(alerts: AlertSettings | None) -> dict[str, str]:
    """Return the text of each field; the queue is masked unless *alerts* names it."""
    shown = AlertSettings("") if alerts is None else alerts
    return {"alert_queue": MASK if shown.queue is None else shown.queue, **texts_in(shown)}


def read_alerts(typed: Typed) -> AlertSettings | None:
    """Return the typed alerts; the queue is read as in read_on_end()."""
    given = any(typed.texts[one.name] for one in rows_of(AlertSettings))
    limits = typed.settings(AlertSettings)
    told = typed.texts["alert_queue"]
    if not given and not told:
        return None
    if not given:
        typed.errors.add("alert_oldest", "is needed, or another limit, or no alert queue")
    if not told:
        typed.errors.add("alert_queue", "is needed: the queue that gets the alerts")
    elif told != MASK:
        typed.errors.name("alert_queue", told)
    return AlertSettings(None if told == MASK else told, **limits)


def read_target(typed: Typed, old: Target | None) -> Target | None:
    """Return the typed target, with the headers of *old* that are still named."""
    url, function = typed.texts["target_url"], typed.texts["target_lambda"]
    requests = typed.settings(Target)
    if url and function:
        typed.errors.add("target_lambda", "must be empty: the tasks are sent to the address")
    if not url and not function:
        return None
    headers = _read_headers(typed, old)
    return Target(url or None, function or None, headers=headers, **requests)


def _read_headers(typed: Typed, old: Target | None) -> Mapping[str, str]:
    """Return the typed headers; a mask stands for the value in *old*."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, typed.texts["target_headers"].split("\n"))):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not name:
            typed.errors.add("target_headers", "must be one a line, as Name: value")
        elif name in found:
            typed.errors.add("target_headers", f"{name:.80} must be there once")
        found[name] = value
    try:
        found = dict(Target(headers=found).unmask_headers(old).headers)
    except InvalidRequest as error:
        [wrong] = error.errors
        name = wrong.field.removeprefix("target.headers.")
        typed.errors.add("target_headers", f"{name:.80} {wrong.message}")
    for wrong_name, fault in headers_faults(found):
        which = "" if wrong_name is None else f"{wrong_name:.80} "
        typed.errors.add("target_headers", f"{which}{fault}")
    return found


def read_on_end(typed: Typed) -> OnEnd | None:
    """Return the typed notification, with None for a masked queue."""
    states = _STATES[typed.choice("told_states", tuple(_STATES))]
    told = typed.texts["told_queue"]
    if not told:
        return None
    if told == MASK:
        return OnEnd(None, states)
    typed.errors.name("told_queue", told)
    return OnEnd(told, states)
