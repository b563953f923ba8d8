"""The settings of a queue as options of a command: the same for `create` and `edit`."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from headrace.cli import params
from headrace.cli.commands import options

NOT_SETTINGS: Final = ("name", "created_at", "updated_at", "version", "stats", "schedules")
"""What a queue shows besides its settings: its own story."""

_SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "description": ("description",),
    "keepalive": ("keepalive_timeout_in_seconds",),
    "expires": ("expires_in_seconds",),
    "history": ("history_retention_in_seconds",),
    "shards": ("shards",),
    "backoff": ("retry_strategy", "kind"),
    "max_retries": ("retry_strategy", "max_retries"),
    "base": ("retry_strategy", "base_seconds"),
    "max_delay": ("retry_strategy", "max_delay_seconds"),
    "jitter": ("retry_strategy", "jitter"),
    "intervals": ("retry_strategy", "intervals"),
    "max_inflight": ("dequeuing_settings", "max_inflight_tasks"),
    "dead_letter": ("dead_letter_queue_config", "enable"),
    "dead_retention": ("dead_letter_queue_config", "retention_period_in_seconds"),
    "dead_max_size": ("dead_letter_queue_config", "max_size"),
}
"""Where each option stands in a queue's settings."""

_TIME: Final[dict[str, Any]] = {"type": params.seconds, "metavar": "TIME"}

settings_options: Final = options(
    click.option("--description", metavar="TEXT", help="For people."),
    click.option("--keepalive", **_TIME, help="How long a lease lasts: 30s."),
    click.option("--expires", **_TIME, help="Tasks not run by then are dead: 14d; 0 is never."),
    click.option("--history", **_TIME, help="How long tasks that succeeded are kept: 1d; 0 none."),
    click.option("--max-retries", type=int, metavar="N", help="Tries after the first: 5."),
    click.option(
        "--backoff",
        type=click.Choice(["exponential", "linear", "quadratic", "fixed"]),
        help="How the wait before a retry grows: exponential.",
    ),
    click.option("--base", **_TIME, help="The wait before the first retry: 20s."),
    click.option("--max-delay", **_TIME, help="No wait is longer: 1h."),
    click.option("--jitter", type=float, metavar="SHARE", help="Random part of each wait: 0.1."),
    click.option(
        "--intervals", type=params.numbers, metavar="T,T,…", help="The waits one by one: 10,1m,1h."
    ),
    click.option(
        "--max-inflight", type=int, metavar="N", help="Tasks run at once, up to 10000; 0 is any."
    ),
    click.option(
        "--rate",
        type=params.rate_limit,
        metavar="N/TIME",
        help="Deliveries, such as 50/s, 100/10s, 3000/m; or none.",
    ),
    click.option("--dead-letter/--no-dead-letter", default=None, help="Keep what failed: yes."),
    click.option("--dead-retention", **_TIME, help="How long: 14d."),
    click.option("--dead-max-size", type=int, metavar="N", help="How many; 0 is any."),
    click.option("--shards", type=int, metavar="N", help="1 keeps strict order; 500 tasks/s each."),
    click.option(
        "--set",
        "assigned",
        type=params.assignment,
        multiple=True,
        metavar="PATH=VALUE",
        help="Any setting by its name in the API, as retry_strategy.jitter=0.2.",
    ),
    click.option(
        "--from-file",
        metavar="FILE",
        help="Settings as JSON, in the form in which `show --json` has them; - is stdin.",
    ),
)


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """The settings in the API's form: from the file, then the options, then --set."""
    fields = _from_file(given["from_file"]) if given["from_file"] else {}
    if given["rate"] is not None:
        params.put_at(fields, ("dequeuing_settings", "rate_limiting"), given["rate"] or None)
    if given["intervals"] is not None:
        params.put_at(fields, ("retry_strategy", "kind"), "intervals")
        # It is their number, and a queue that is edited has another one.
        params.put_at(fields, ("retry_strategy", "max_retries"), len(given["intervals"]))
    elif given["backoff"] is not None:
        params.put_at(fields, ("retry_strategy", "intervals"), [])
    for name, path in _SETTINGS.items():
        if given[name] is not None:
            params.put_at(fields, path, given[name])
    for path, value in given["assigned"]:
        params.put_at(fields, path, value)
    return fields


def _from_file(name: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        found = json.loads(text)
    except OSError as error:
        raise click.BadParameter(f"{name}: {error.strerror}", param_hint="'--from-file'") from error
    except ValueError as error:
        raise click.BadParameter(
            f"{name}: not JSON: {error}", param_hint="'--from-file'"
        ) from error
    if not isinstance(found, dict):
        raise click.BadParameter(f"{name}: holds no JSON object", param_hint="'--from-file'")
    return {field: value for field, value in found.items() if field not in NOT_SETTINGS}
