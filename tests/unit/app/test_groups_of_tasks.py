"""Groups of tasks that apps enqueue: chosen for a call, declared, or refused."""

import pytest

from headrace import App
from headrace.domain.errors import InvalidRequest
from headrace.testing import MemoryService


def grouped() -> App:
    app = App()
    app.queue("mail", groups={"mode": "fair"})
    return app


def test_a_call_may_choose_a_group_and_a_task_may_declare_one() -> None:
    app = grouped()

    @app.task(queue="mail", group="all")
    def send(to: str) -> None: ...

    with MemoryService() as service, service.serving(app):
        app.ensure_queues()
        send.enqueue("ada")
        send.options(group="acme").enqueue("bea")
        tasks = list(service.client.list_tasks("mail"))
        found = list(service.client.list_tasks("mail", group_key="acme"))
        standing = service.client.get_group("mail", "acme")

    assert sorted(str(task.group_key) for task in tasks) == ["acme", "all"]
    assert [task.group_key for task in found] == ["acme"]
    assert (standing.waiting, standing.turn) == (1, 1.0)


@pytest.mark.parametrize("group", ["x" * 129])
def test_a_group_that_is_no_key_is_refused(group: str) -> None:
    app = grouped()

    @app.task(queue="mail")
    def send() -> None: ...

    with (
        MemoryService() as service,
        service.serving(app),
        pytest.raises(InvalidRequest, match="group"),
    ):
        send.options(group=group).enqueue()
