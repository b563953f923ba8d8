"""Priorities in code: declared with a function, chosen for a call, and synced with a queue."""

from headrace import App
from headrace.testing import MemoryService


def post(to: str) -> None:
    """Do nothing."""


def test_a_priority_is_declared_with_a_function_or_chosen_for_a_call(
    headrace_service: MemoryService,
) -> None:
    app = App()
    app.queue("mail", priority={"aging_in_seconds": 60})
    send = app.task(queue="mail", name="send", priority="low")(post)
    with headrace_service.serving(app):
        made = [send.enqueue("a"), send.options(priority="high").enqueue("b")]
        tasks = [headrace_service.client.get_task(str(one.id)) for one in made]
        high = list(headrace_service.client.list_tasks("mail", priority="high"))

    assert [task.priority for task in tasks] == ["low", "high"]
    assert [task.id for task in high] == [made[1].id]


def test_a_schedule_has_the_priority_of_its_function(headrace_service: MemoryService) -> None:
    app = App(name="post")
    app.queue("mail", priority={})
    send = app.task(queue="mail", name="send", priority="high")(post)
    app.periodic(every=60, args={"to": "all"})(send)
    with headrace_service.serving(app):
        app.ensure_queues()
        app.sync_schedules()
        shown = headrace_service.client.get_schedule("mail", "send")

    assert shown.priority == "high"
