"""Bodies of requests to test, how they are read, and what is refused of them."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from headrace.http.problems import invalid
from headrace.http.rawjson import decode

HELD = {"task_id": "tsk_1", "lease_id": "lse_1.1."}


def task(**fields: Any) -> dict[str, Any]:
    return {"tasks": [fields]}


def report(status: str = "SUCCEEDED", **fields: Any) -> dict[str, Any]:
    return {"reports": [{**HELD, "status": status, **fields}]}


def moved(**fields: Any) -> dict[str, Any]:
    return report("MOVED", **{"to_queue": "next", **fields})


def queue(**fields: Any) -> dict[str, Any]:
    return {"name": "mail", **fields}


def retry(**fields: Any) -> dict[str, Any]:
    return queue(retry_strategy=fields)


def intervals(*waits: float, **fields: Any) -> dict[str, Any]:
    return retry(kind="intervals", intervals=list(waits), **fields)


def dead(**fields: Any) -> dict[str, Any]:
    return queue(dead_letter_queue_config=fields)


def dequeuing(**fields: Any) -> dict[str, Any]:
    return queue(dequeuing_settings=fields)


def rate(**fields: Any) -> dict[str, Any]:
    return dequeuing(rate_limiting={"max_tokens": 1, "interval": 1, **fields})


def tags(count: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


def text(size: int) -> str:
    """Return a text whose JSON is *size* bytes, quotes included."""
    return "é" + "x" * (size - 4)


def read(model: type[BaseModel], body: Any) -> Any:
    """Return *body* as a request of it would be read."""
    return model.model_validate(decode(json.dumps(body, ensure_ascii=False)))


def refused(model: type[BaseModel], body: Any) -> dict[str, str]:
    """Return the fields that are refused, each with why."""
    with pytest.raises(ValidationError) as failed:
        read(model, body)
    errors = [{**error, "loc": ("body", *error["loc"])} for error in failed.value.errors()]
    return {error.field: error.message for error in invalid(errors).errors}


@dataclass(frozen=True)
class Limit:
    """A field, a body with its value at the limit, one just over it, and how the limit reads."""

    model: type[BaseModel]
    field: str
    good: Any
    bad: Any
    named: str
