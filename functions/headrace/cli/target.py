"""The target of a queue as options, who is told what, and the secret that signs what it gets."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from headrace.cli import params
from headrace.cli.commands import CliCommand, options, setting_option
from headrace.cli.output import answer, span, when
from headrace.cli.session import CliSession
from headrace.domain.push import Target
from headrace.domain.settings import own_settings
from headrace.wire.queues import AlertOn, Queue, SigningSecret

_NAMES: Final = ("target_url", "target_lambda", "target_header", "no_target")
_STATES: Final = ("SUCCEEDED", "DEAD")

target_options: Final = options(
    click.option("--target-url", metavar="URL", help="Send the tasks there, as POST requests."),
    click.option("--target-lambda", metavar="ARN", help="Call that Lambda function with them."),
    *map(setting_option, own_settings(Target)),
    click.option(
        "--target-header",
        type=params.tag,
        multiple=True,
        metavar="NAME=VALUE",
        help="Sent with each request; may be given again, and names all there are.",
    ),
    click.option("--no-target", is_flag=True, help="Workers dequeue the tasks again."),
    click.option(
        "--on-end",
        metavar="QUEUE[:STATE,…]",
        help="Tell that queue of tasks that end here: told, told:DEAD; or none.",
    ),
    click.option(
        "--alert",
        "alerts",
        metavar="QUEUE:LIMIT,…",
        help="Tell that queue when a limit is reached: ops:oldest=5m,dead=10,silent=2m; or none.",
    ),
)


def take_target(fields: dict[str, Any], given: dict[str, Any]) -> None:
    """Take these options out of *given* and put what they say into *fields*."""
    url, arn, headers, none = (given.pop(name) for name in _NAMES)
    said: dict[str, Any] = {}
    if url is not None:
        said |= {"url": url, "lambda": arn}
    elif arn is not None:
        said |= {"url": None, "lambda": arn}
    for setting in own_settings(Target):
        value = given.pop(setting.about.short)
        if value is not None:
            said[setting.name] = value
    if headers:
        said["headers"] = dict(headers)
    if none and said:
        raise click.UsageError("--no-target goes with no other option of a target")
    if none:
        fields["target"] = None
    elif said:
        fields["target"] = {**(fields.get("target") or {}), **said}
    _take_told(fields, given)


def _take_told(fields: dict[str, Any], given: dict[str, Any]) -> None:
    for name, read in (("on_end", _on_end), ("alerts", _alerts)):
        text = given.pop(name)
        if text is not None:
            fields[name] = read(text)


def _on_end(text: str) -> dict[str, Any] | None:
    """Return who is told of ends as *text* says; None for nobody."""
    if text == "none":
        return None
    queue, named, states = text.partition(":")
    chosen = [one.strip().upper() for one in states.split(",")] if named else list(_STATES)
    unknown = [one for one in chosen if one not in _STATES]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} is none of {', '.join(_STATES)}", param_hint="'--on-end'"
        )
    return {"queue": queue, "states": chosen}


def _alerts(text: str) -> dict[str, Any] | None:
    """Return what is worth an alert as *text* says; None for nothing."""
    if text == "none":
        return None
    queue, named, given = text.partition(":")
    if not named or not queue.strip():
        known = ",".join(f"{one}=…" for one in _LIMITS)
        raise click.BadParameter(
            f"say in which queue to tell of it: QUEUE:{known}", param_hint="'--alert'"
        )
    found: dict[str, Any] = {"queue": queue, **dict.fromkeys(path for path, _ in _LIMITS.values())}
    for part in given.split(","):
        word, _, limit = part.partition("=")
        if word.strip() not in _LIMITS:
            known = ", ".join(f"{one}=…" for one in _LIMITS)
            raise click.BadParameter(f"{part!r} is none of {known}", param_hint="'--alert'")
        name, read = _LIMITS[word.strip()]
        try:
            found[name] = read(limit)
        except ValueError:
            raise click.BadParameter(
                f"{limit!r} is no number of tasks", param_hint="'--alert'"
            ) from None
    return found


def alerts_on(queue: Queue) -> list[str]:
    """Return what the alerts of *queue* say that are on, one a text; none where it has no stats."""
    return [
        f"{_alert_in_words(one)} (limit {_measured(one.threshold, one.limit)}) since "
        f"{when(one.since)}"
        for one in _on(queue)
    ]


def _on(queue: Queue) -> Iterable[AlertOn]:
    return (queue.stats.alerts if queue.stats else None) or ()


def _alert_in_words(alert: AlertOn) -> str:
    return (
        f"{_WORDS.get(alert.threshold, alert.threshold)} {_measured(alert.threshold, alert.value)}"
    )


def _measured(threshold: str, value: float) -> str:
    return span(value) if threshold.endswith("_seconds") else f"{value:,.10g}"


def alerts_of(session: CliSession, queues: Iterable[Queue]) -> dict[str, str | None]:
    """Return the same in short of each of *queues* that may have alerts: a list has none."""
    return {
        queue.name: ", ".join(map(_alert_in_words, _on(session.client.get_queue(queue.name))))
        or None
        for queue in queues
        if queue.alerts is not None
    }


_WORDS: Final = {
    "oldest_ready_seconds": "oldest ready",
    "dead_per_minute": "dead in a minute:",
    "no_workers_for_seconds": "no workers for",
}
_LIMITS: Final[dict[str, tuple[str, Callable[[str], float]]]] = {
    "oldest": ("oldest_ready_seconds", params.seconds),
    "dead": ("dead_per_minute", int),
    "silent": ("no_workers_for_seconds", params.seconds),
}


@click.command("secret", cls=CliCommand, example="headrace queue secret hooks --rotate")
@click.argument("queue")
@click.option("--rotate", is_flag=True, help="Make another; the one before signs too for a day.")
@click.pass_obj
def secret_command(session: CliSession, /, queue: str, *, rotate: bool) -> None:
    """Show the secret by which receivers verify what a queue sends to its target."""
    client = session.client
    found = client.rotate_signing_secret(queue) if rotate else client.get_signing_secret(queue)
    answer(session, found, lambda: _show(found))


def _show(found: SigningSecret) -> None:
    click.echo(found.secret or "The answer is a repeat: ask again without --rotate.")
    if found.previous and found.previous_until:
        until = found.previous_until.isoformat(timespec="seconds")
        click.echo(f"{found.previous} signs too until {until}", err=True)
