"""Tables of settings, roles, errors, limits and variables, from their declarations."""

import inspect
import json
from dataclasses import fields
from enum import StrEnum
from typing import Any, Final

from benchmarks.bill import MONTH_SECONDS, Load, bill
from headrace.domain import errors, limits
from headrace.domain.access import ROLES, Permission, Role
from headrace.domain.push import Target
from headrace.domain.queue_settings import (
    AlertSettings,
    PrioritySettings,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.settings import Kind, Setting, declared_settings
from headrace.domain.times import duration_text
from headrace.local.environment import LocalSettings
from headrace.runtime.settings import Settings
from infra.reference import cell, code, table
from infra.template import load_template

_MINUTE: Final = 60

COLUMNS: Final = ("setting", "default", "allowed", "meaning")

_OBJECTS: Final[tuple[tuple[str, type], ...]] = (
    ("", QueueSettings),
    ("dequeuing_settings.rate_limiting.", RateLimiting),
    ("priority.", PrioritySettings),
    ("target.", Target),
    ("alerts.", AlertSettings),
)


def parts() -> dict[str, str]:
    """Return the tables by the names of their marks."""
    return {
        "queue-settings": _queue_settings(),
        "roles": _roles(),
        "errors": _errors(),
        "limits": _limits(),
        "service-variables": _variables(Settings, _SERVICE),
        "run-variables": _variables(LocalSettings, _RUN),
        "costs": _costs(),
        "parameters": _parameters(),
    }


# -- settings of a queue ---------------------------------------------------------------------------


def _queue_settings() -> str:
    rows = [
        (code(prefix + ".".join(one.path)), _default(one), _allowed(one), cell(one.hint))
        for prefix, shape in _OBJECTS
        for one in declared_settings(shape)
    ]
    return table(COLUMNS, rows)


def _default(one: Setting) -> str:
    if one.required:
        return "required"
    value = one.default
    if one.kind is Kind.SECONDS and value:
        return f"{code(value)} ({duration_text(value)})" if value >= _MINUTE else code(value)
    return code(json.dumps(value.value if isinstance(value, StrEnum) else value))


def _allowed(one: Setting) -> str:
    low, high = one.within
    match one.kind:
        case Kind.FLAG:
            return "`true`, `false`"
        case Kind.WORD:
            return ", ".join(code(word.value) for word in one.words or ())
        case Kind.TEXT:
            return f"up to {high:,.0f} bytes"
    null = ", or `null`" if one.nullable else ""
    unit = " s" if one.kind is Kind.SECONDS else ""
    return f"{low:,} to {high:,}{unit}{null}"


# -- roles -----------------------------------------------------------------------------------------

_ABOUT_PERMISSIONS: Final = {
    Permission.READ: "read queues, stats, metrics, schedules and counts; one task and why it waits",
    Permission.LIST: "list tasks and workers",
    Permission.DETAILS: "see payloads, results and progress",
    Permission.ENQUEUE: "enqueue tasks, upload payloads, start batches and workflows",
    Permission.CANCEL: "cancel tasks",
    Permission.WORK: "dequeue, report, send worker heartbeats",
    Permission.OPERATE: (
        "delete, run, restart, move and purge tasks; pause and resume queues; change schedules;"
        " read the audit; quiet or stop workers"
    ),
    Permission.ADMINISTER: "create, edit and delete queues; manage keys",
}


def _roles() -> str:
    rows = [
        (_ABOUT_PERMISSIONS[permission], *("●" if role in roles else "" for role in Role))
        for permission, roles in ROLES.items()
    ]
    return table(("a key may", *Role), rows)


# -- errors ----------------------------------------------------------------------------------------


def _errors() -> str:
    kinds = [
        kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.HeadraceError) and name[0] != "_"
    ]
    rows = [
        (
            code(kind.__name__),
            code(kind.code),
            str(kind.status),
            code("" if kind is errors.HeadraceError else kind.__mro__[1].__name__),
            cell((inspect.getdoc(kind) or "").partition("\n\n")[0]),
        )
        for kind in kinds
    ]
    return table(("class", "code", "status", "is a kind of", "meaning"), rows)


# -- limits ----------------------------------------------------------------------------------------

_LIMITS: Final[tuple[tuple[str, str, str], ...]] = (
    ("payload of a task, as JSON", "PAYLOAD_BYTES", "bytes"),
    ("payload that a producer uploads", "UPLOAD_BYTES", "bytes"),
    ("result of a task", "RESULT_BYTES", "bytes"),
    ("progress of a task", "PROGRESS_BYTES", "bytes"),
    ("one error of a task, as JSON", "ERROR_BYTES", "bytes"),
    ("errors kept with a task", "ERRORS_KEPT", ""),
    ("queues kept in a task's trail", "TRAIL_KEPT", ""),
    ("tags of a task", "TAGS", ""),
    ("key of a tag", "TAG_KEY_BYTES", "bytes"),
    ("value of a tag", "TAG_VALUE_BYTES", "bytes"),
    ("`dedupe_key`", "DEDUPE_KEY_BYTES", "bytes"),
    ("`group_key`", "GROUP_KEY_BYTES", "bytes"),
    ("batches that one task joins", "TASK_BATCHES", ""),
    ("members of a batch", "BATCH_MEMBERS", ""),
    ("lifetime of an open batch", "BATCH_EXPIRES_SECONDS", "s"),
    ("tasks spawned by one report", "SPAWN", ""),
    ("payloads spawned by one report, together", "SPAWNED_BYTES", "bytes"),
    ("`max_retries`", "MAX_RETRIES", ""),
    ("`max_delay` and intervals of a retry strategy", "RETRY_DELAY_SECONDS", "s"),
    ("waits in a list of intervals", "INTERVALS", ""),
    ("lease of a task", "KEEPALIVE_SECONDS", "s"),
    ("delay of a task, of `Retry` and of `Snooze`", "DELAY_SECONDS", "s"),
    ("expiry of a task", "EXPIRES_SECONDS", "s"),
    ("window of `unique_for_seconds`", "UNIQUE_SECONDS", "s"),
    ("retention of ended tasks", "RETENTION_SECONDS", "s"),
    ("time for an undo", "UNDO_SECONDS", "s"),
    ("entries in one enqueue, dequeue or report call", "BATCH", ""),
    ("queues in one dequeue call", "DEQUEUE_QUEUES", ""),
    ("wait of one long poll", "WAIT_SECONDS", "s"),
    ("ids in one action on many tasks", "BULK_IDS", ""),
    ("tasks that one action by filter changes", "BULK_TASKS", ""),
    ("tasks on one page of a list", "LIST_PAGE", ""),
    ("search query", "QUERY", "characters"),
    ("indexed tags, and indexed payload paths, of a queue", "INDEXED", ""),
    ("body of a request", "BODY_BYTES", "bytes"),
    ("tasks in one answer", "ANSWER_BYTES", "bytes"),
    ("tasks in flight of a queue (`max_inflight_tasks`)", "INFLIGHT", ""),
    ("tasks in flight of a group", "GROUP_INFLIGHT", ""),
    ("groups with a weight in a queue", "WEIGHTS", ""),
    ("weight of a group", "WEIGHT", ""),
    ("queues of a worker", "WORKER_QUEUES", ""),
    ("concurrency of a worker", "WORKER_CONCURRENCY", ""),
    ("interval of a schedule", "EVERY_SECONDS", "s"),
    ("URL of a target", "TARGET_URL_BYTES", "bytes"),
    ("headers of a target", "TARGET_HEADERS", ""),
    ("`Retry-After` that a target may ask for", "RETRY_AFTER_SECONDS", "s"),
    ("queue patterns of a key", "PATTERNS", ""),
    ("overlap of a rotated key", "OVERLAP_SECONDS", "s"),
    ("days in one chart", "METRIC_DAYS", ""),
)


def _limits() -> str:
    rows = [
        (what, _value(getattr(limits, name), unit), code(f"limits.{name}"))
        for what, name, unit in _LIMITS
    ]
    return table(("limit", "value", "in Python"), rows)


def _value(value: Any, unit: str) -> str:  # noqa: ANN401 (a number, or the least and the most)
    if isinstance(value, tuple):
        low, high = value
        return f"{low:,} to {_value(high, unit)}"
    if unit == "bytes" and value >= limits.KIB:
        kib, mib = f"{value / limits.KIB:g} KiB", f"{value >> 20:,} MiB"
        return kib if value < limits.MIB else mib
    if unit == "s" and value >= _MINUTE:
        return f"{value:,} s ({duration_text(value)})"
    return f"{value:,} {unit}".strip()


# -- variables of the environment ------------------------------------------------------------------

_SERVICE: Final = {
    "tasks_table": "name of the table of tasks",
    "control_table": "name of the table of queues, keys and schedules",
    "dynamodb_url": "endpoint of DynamoDB; without it, Amazon's own",
    "admin_key": "the deployment's admin key",
    "poll_after_seconds": "pause between two calls that the service recommends to an idle worker",
    "long_poll_seconds": "longest wait of one request",
    "settings_ttl_seconds": "longest time for which a process uses settings that it has read",
    "sender": "`batch`: up to 25 changes in a request to DynamoDB; `single`: one, for engines "
    "without PartiQL's `RETURNING`",
    "session_secret": "secret that signs the console's sessions",
    "lake": "folder or `s3://bucket/prefix` of the history; `none` turns it off",
    "lake_payloads": "patterns of queues whose payloads the history keeps, with commas",
    "payloads": "folder or `s3://bucket/prefix` of large payloads; `none` turns it off",
    "payload_offload_bytes": "size from which a payload is kept outside the table; 0: never",
    "metrics": "name of the stack in CloudWatch metrics; without it, there are no metrics",
    "admin_key_arn": "secret of AWS Secrets Manager with the admin key",
    "session_secret_arn": "secret of AWS Secrets Manager with the session secret",
    "dispatcher": "Lambda function that sends tasks to targets",
    "reaper": "Lambda function that works on actions",
    "insecure_cookies": "`1`: the console's sign-in works over plain http",
    "function": "set by Lambda",
}
_RUN: Final = {
    "port": "port to listen on; 0: any free port",
    "data_dir": "folder of the data, or `:memory:`",
    "admin_key": "the admin key; without it, one is created and kept with the data",
    "dynamodb_url": "endpoint of DynamoDB to use instead of a file",
    "host": "address to listen on",
    "root_path": "path in front of every URL",
    "trusted_proxies": "addresses and networks of proxies whose `X-Forwarded` headers count",
    "insecure_cookies": "`1`: the console's sign-in works over plain http",
}


def _variables(shape: type, about: dict[str, str]) -> str:
    rows = []
    for field in fields(shape):
        variable = field.metadata.get("variable") or f"HEADRACE_{field.name.upper()}"
        if shape is Settings and "variable" not in field.metadata:
            continue
        default = field.default
        if default is False:
            shown = "`0`"
        elif default in (None, (), ""):
            shown = ""
        else:
            shown = code(f"{default:g}" if isinstance(default, float) else default)
        rows.append((code(variable), shown, about[field.name]))
    return table(("variable", "default", "meaning"), rows)


# -- costs -----------------------------------------------------------------------------------------

_KB: Final = 1_000
_MONTHLY: Final = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
_PAYLOADS: Final = (400, 4 * _KB, 100 * _KB)


def _costs() -> str:
    rows = []
    for tasks in _MONTHLY:
        for payload in _PAYLOADS:
            ways = [
                bill(Load(tasks / MONTH_SECONDS, payload, batch=chunk), over_tables=over_tables).usd
                for chunk, over_tables in ((25, False), (1, False), (25, True))
            ]
            size = f"{payload // _KB} KB" if payload >= _KB else f"{payload} bytes"
            rows.append((f"{tasks:,}", size, *(f"{usd:,.2f}" for usd in ways)))
    columns = ("tasks a month", "payload", "25 in a call", "1 in a call", "over the tables")
    return table(columns, rows)


# -- parameters of the template --------------------------------------------------------------------


def _parameters() -> str:
    rows = []
    for name, declared in load_template()["Parameters"].items():
        words = [code(word) for word in declared.get("AllowedValues", ()) if isinstance(word, str)]
        allowed = f" One of {', '.join(words)}." if words else ""
        meaning = cell(declared["Description"]) + allowed
        rows.append((code(name), code(declared.get("Default", "")), meaning))
    return table(("parameter", "default", "meaning"), rows)
