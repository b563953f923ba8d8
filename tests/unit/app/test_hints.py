"""Names that other task queues have, and names with a slip in them."""

from dataclasses import replace
from typing import Any

import pytest

from headrace import App
from headrace.domain.errors import InvalidRequest
from tests.unit.app.app_doubles import FakeHttp


@pytest.fixture
def app() -> App:
    return FakeHttp().app()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("delay", r"say send\.enqueue\(…\)"),
        ("apply_async", r"say send\.options\(delay=…\)\.enqueue\(…\)"),
        ("nothing_of_the_kind", "^'TaskFunction' object has no attribute 'nothing_of_the_kind'$"),
    ],
)
def test_what_other_task_queues_call_it_is_answered_with_what_it_is_here(
    app: App, name: str, hint: str
) -> None:
    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(AttributeError, match=hint):
        getattr(send, name)
    assert not hasattr(send, name)


@pytest.mark.parametrize("name", ["enqueue", "aenqueue", "delay", "apply_async", "send"])
def test_a_call_that_is_to_be_enqueued_at_once_is_told_to_leave_out_s(app: App, name: str) -> None:
    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(AttributeError, match=r"say send\.enqueue\(…\) without \.s$"):
        getattr(send.s("ada"), name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        send.s("ada").nothing  # type: ignore[attr-defined]  # noqa: B018
    assert replace(send.s("ada"), tags={"a": "b"}) == send.options(tags={"a": "b"}).s("ada")


@pytest.mark.parametrize("wrong", ["abc", 5, None, ["to"]])
def test_a_call_of_many_that_is_no_mapping_is_named_by_its_place(app: App, wrong: Any) -> None:
    app.queue("default")

    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(InvalidRequest, match=r"^calls\[1\] must be a mapping of arguments by name"):
        send.enqueue_many([{"to": "ada"}, wrong])


def test_an_option_with_a_slip_in_its_name_is_told_the_one_that_was_meant(app: App) -> None:
    wrong: Any = {"retry": 3}
    with pytest.raises(
        TypeError, match="task has no option retry: did you mean retries or retry_on"
    ):
        app.task(**wrong)

    @app.task
    def send(to: str) -> None: ...

    wrong = {"dely": 5}
    with pytest.raises(TypeError, match="options has no option dely: did you mean delay"):
        send.options(**wrong)
    wrong = {"zzz": 5}
    with pytest.raises(TypeError, match="periodic has no option zzz: it has cron, every"):
        app.periodic(**wrong)


def test_an_option_as_other_task_queues_call_it_is_told_what_it_is_here(app: App) -> None:
    wrong: Any = {"autoretry_for": (OSError,)}
    with pytest.raises(TypeError, match="no option autoretry_for: did you mean retry_on"):
        app.task(**wrong)
    wrong = {"throws": OSError}
    with pytest.raises(TypeError, match="handler has no option throws: did you mean reject_on"):
        app.handler(queue="mail", **wrong)
    wrong = {"countdown": 5}
    with pytest.raises(TypeError, match="options has no option countdown: did you mean delay"):
        app.task(lambda to: None).options(**wrong)
    wrong = {"throws": OSError}
    with pytest.raises(TypeError, match="options has no option throws: it has queue"):
        app.task(lambda to: None).options(**wrong)
