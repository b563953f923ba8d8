"""What a worker is told, checked."""

from typing import Any

import pytest

from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import InvalidRequest


def settings(queues: Any = ("mail",), **given: Any) -> WorkerSettings:
    return WorkerSettings.of(queues, **given)


def test_what_is_left_out_has_a_sensible_value() -> None:
    made = settings()

    assert made.queues == {"mail": 1.0}
    assert made.concurrency == 10
    assert made.prefetch is None
    assert ":" in made.name


def test_with_isolation_there_is_a_child_for_each_processor() -> None:
    assert 1 <= settings(isolate=True).concurrency < 10_000


def test_weights_keep_their_order() -> None:
    assert list(settings({"b": 3, "a": 0.5}).queues.items()) == [("b", 3), ("a", 0.5)]


@pytest.mark.parametrize(
    ("given", "field", "limit"),
    [
        ({"queues": []}, "queues", "1 to 100"),
        ({"queues": [f"q{number}" for number in range(101)]}, "queues", "1 to 100"),
        ({"queues": "mail"}, "queues", "list of names"),
        ({"queues": {"mail": 0}}, "queues.mail", "above 0"),
        ({"queues": {"mail": float("nan")}}, "queues.mail", "above 0"),
        ({"queues": {"mail": 1}, "strict": True}, "strict", "exclude each other"),
        ({"concurrency": 0}, "concurrency", "1 to 10000"),
        ({"concurrency": 2.5}, "concurrency", "whole number"),
        ({"concurrency": True}, "concurrency", "whole number"),
        ({"prefetch": -1}, "prefetch", "0 to 1000"),
        ({"keepalive": 0.5}, "keepalive", "1 to 43200"),
        ({"shutdown_timeout": -1}, "shutdown_timeout", "of at least 0"),
        ({"name": "x" * 257}, "name", "256 bytes"),
    ],
)
def test_nonsense_is_refused_with_the_field_and_its_limit(
    given: dict[str, Any], field: str, limit: str
) -> None:
    with pytest.raises(InvalidRequest, match=limit) as refused:
        settings(**given)

    assert [error.field for error in refused.value.errors] == [field]
