"""Names of task functions that no worker, or no other worker, can find."""

from headrace import App
from tests.unit.app.app_runner import call, run


def message(app: App, name: str) -> str:
    """Return what is said of a task that asks for *name*."""
    (error,) = run(app, call(name)).errors
    assert error.type == "UnknownTask"
    return error.message


def outer() -> None:
    """Stand for a function with a task in it, which never runs."""


def test_an_unknown_task_says_what_may_be_meant() -> None:
    app = App()
    for name in ("pkg.sub.mod.hello", "hello", "pkg.other"):
        app.task(name=name)(lambda: None)
    app.queue("mail", work=True)

    assert message(app, "mod.hello").startswith(
        "no task here is named 'mod.hello': did you mean hello or pkg.sub.mod.hello? "
    )
    assert "did you mean pkg.other? If not, import" in message(app, "pkg.othr")
    app = App()
    app.queue("mail", work=True)
    assert f"inside the function {__name__}.outer, which the worker does not call" in message(
        app, f"{__name__}.outer.inner"
    )
    assert "typed or piped into a program" in message(app, "__main__.hello")
    assert "import the module that declares it" in message(app, "gone")
    assert message(app, "other.app").endswith(
        "If another app enqueues into queue mail, give each app its own queue: apps that share one"
        " fail each other's tasks"
    )
    assert '@app.handler(queue="mail")' in run(app, {"x": 1}).errors[0].message


def test_a_call_of_an_unknown_task_never_goes_to_the_raw_handler_of_its_queue() -> None:
    app, seen = App(), list[object]()

    @app.handler(queue="mail")
    def note(payload: object) -> None:
        seen.append(payload)

    assert "no task here is named 'mail.renamed'" in message(app, "mail.renamed")
    assert seen == []
    for data in ({"to": "ada"}, {"task": "water the plants"}, [1], "text"):
        assert run(app, data).state == "SUCCEEDED"
    assert len(seen) == 4
