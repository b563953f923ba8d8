"""Names of task functions that no worker, or no other worker, can find."""

import asyncio
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from headrace import App
from infra import PROJECT_ROOT
from tests.unit.app.app_doubles import FakeControl, FakeHttp, call, leased, run


def typed(app: App, name: str | None = None) -> ModuleType:
    """A module as what is typed into Python: it is named so, and is no file."""
    module = ModuleType("__main__")
    module.__dict__.update(app=app, name=name)
    exec("def hello(n: int) -> None: ...\nhello = app.task(name=name)(hello)", module.__dict__)  # noqa: S102
    return module


@pytest.fixture
def _no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))


@pytest.mark.usefixtures("_no_file")
def test_the_first_enqueue_of_what_is_in_no_file_says_that_no_other_process_knows_it() -> None:
    hello = typed(FakeHttp().app()).hello
    with pytest.warns(UserWarning, match=r"named __main__\.hello.*@app\.task\(name=…\)") as heard:
        hello.enqueue(1)
    assert heard[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        hello.enqueue(2)


@pytest.mark.usefixtures("_no_file")
def test_each_way_to_enqueue_it_says_so() -> None:
    app = FakeHttp().app()
    ways: list[Callable[[Any], object]] = [
        lambda task: task.s(1),
        lambda task: task.prepare(1),
        lambda task: task.enqueue_many([{"n": 1}]),
        lambda task: task.options(delay=5).enqueue(1),
        lambda task: asyncio.run(task.aenqueue(1)),
    ]
    for enqueue in ways:
        hello = typed(app).hello
        with pytest.warns(UserWarning, match="only a worker in this process"):
            enqueue(hello)


@pytest.mark.usefixtures("_no_file")
def test_it_is_quiet_where_the_name_is_given_or_a_worker_in_this_process_runs_the_app() -> None:
    typed(FakeHttp().app(), "shop.hello").hello.enqueue(1)

    app = FakeHttp().app()
    hello = typed(app).hello
    app.execute(leased(call("__main__.hello", n=1)), FakeControl())
    hello.enqueue(1)

    service = FakeHttp()
    app = service.app()
    hello = typed(app).hello
    other = service.app()
    with app.using(service.client(), other._posting.async_client):  # noqa: SLF001 as a test's
        hello.enqueue(1)


@pytest.mark.parametrize("how", [["-c"], ["-"]])
def test_what_is_piped_into_python_is_named_as_what_is_typed(how: list[str]) -> None:
    program = (
        "from headrace import App\n"
        "app = App()\n"
        "@app.task\n"
        "def hello() -> None: ...\n"
        "print(hello.name)"
    )
    piped = how == ["-"]
    ran = subprocess.run(
        [sys.executable, *how, *([] if piped else [program])],
        input=program if piped else None,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT / "functions")},
    )
    assert ran.stdout == "__main__.hello\n"
    assert ran.stderr == ""


def message(app: App, name: str) -> str:
    """What is said of a task that asks for *name*."""
    report = run(app, call(name))
    assert report.error is not None
    assert report.error.type == "UnknownTask"
    return report.error.message


def outer() -> None:
    """Stand for a function with a task in it, which never runs."""


def test_an_unknown_task_is_told_the_names_that_may_be_meant() -> None:
    app = FakeHttp().app()
    app.task(name="pkg.sub.mod.hello")(lambda: None)
    app.task(name="hello")(lambda: None)
    app.task(name="pkg.other")(lambda: None)
    assert message(app, "mod.hello").startswith(
        "no task here is named 'mod.hello': did you mean hello or pkg.sub.mod.hello? "
    )


def test_an_unknown_task_that_a_function_declares_or_that_was_typed_says_so() -> None:
    app = FakeHttp().app()
    assert f"inside the function {__name__}.outer, which has to run" in message(
        app, f"{__name__}.outer.inner"
    )
    assert "typed or piped into a program" in message(app, "__main__.hello")
    assert "import the module that declares it" in message(app, f"{__name__}.gone")
    assert "import the module that declares it" in message(app, "gone")


def test_the_log_has_the_name_that_was_asked_for_and_metrics_have_not() -> None:
    app = FakeHttp().app()
    route = app.route(leased(call("mod." + "x" * 300)))
    assert (route.name, route.title) == ("unknown", ("mod." + "x" * 300)[:200])
    assert app.route(leased({"x": 1})).title == "unknown"
    app.task(name="known")(lambda: None)
    assert app.route(leased(call("known"))).title == "known"


def test_a_call_of_an_unknown_task_never_goes_to_the_raw_handler_of_its_queue() -> None:
    app, seen = FakeHttp().app(), list[object]()

    @app.handler(queue="mail")
    def note(payload: object) -> None:
        seen.append(payload)

    assert "no task here is named 'mail.renamed'" in message(app, "mail.renamed")
    assert app.route(leased(call("mail.renamed"))).title == "mail.renamed"
    assert seen == []

    for data in ({"to": "ada"}, {"task": "water the plants"}, [1], "text"):
        assert run(app, data).status == "SUCCEEDED"
    assert len(seen) == 4


def test_an_unknown_task_says_that_apps_that_share_a_queue_fail_each_others_tasks() -> None:
    assert message(FakeHttp().app(), "other.app").endswith(
        "If another app enqueues into queue mail, give each app its own queue: apps that share one"
        " fail each other's tasks"
    )
