"""What a worker is given, checked."""

from typing import Any

import pytest

from headrace import App, Worker
from headrace.domain.errors import InvalidRequest


@pytest.mark.parametrize(
    ("given", "field", "limit"),
    [
        ({"queues": []}, "queues", "1 to 100"),
        ({"queues": "mail"}, "queues", "list of names"),
        ({"queues": {"mail": float("nan")}}, "queues.mail", "above 0"),
        ({"queues": {"mail": 1}, "strict": True}, "strict", "exclude each other"),
        ({"concurrency": 0}, "concurrency", "1 to 10000"),
        ({"lease_seconds": 0.5}, "lease_seconds", "1 to 43200"),
        ({"name": "x" * 257}, "name", "256 bytes"),
        ({"prune": True}, "prune", "needs sync"),
        ({"isolate": True}, "app", "variable of a module"),
    ],
)
def test_nonsense_is_refused_with_the_field_and_its_limit(
    given: dict[str, Any], field: str, limit: str
) -> None:
    with pytest.raises(InvalidRequest, match=limit) as refused:
        Worker(App(url="https://queue.test", key="k"), **{"queues": ["mail"], **given})

    assert [error.field for error in refused.value.errors] == [field]


def test_an_unknown_option_is_refused_with_the_nearest_right_name() -> None:
    with pytest.raises(TypeError, match="no option concurency: did you mean concurrency"):
        Worker(App(url="https://queue.test", key="k"), concurency=2)  # type: ignore[call-arg]
