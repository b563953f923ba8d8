"""`headrace api`: any request to the API."""

from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli


def test_a_script_enqueues_dequeues_and_reports(headrace_service: MemoryService) -> None:
    cli = Cli(headrace_service)
    cli("queue", "create", "mail")

    cli("api", "POST", "/v1/queues/mail/tasks", '{"tasks": [{"id": "a", "payload": {"n": 1.0}}]}')
    taken = cli("api", "post", "/v1/queues/mail/dequeue", "-", input='{"worker": "script"}')
    [task] = taken.json["tasks"]
    report = f'{{"task_id": "a", "lease_id": "{task["lease"]["id"]}", "status": "SUCCEEDED"}}'
    cli("api", "POST", "/v1/queues/mail/reports", f'{{"reports": [{report}]}}')

    assert '"n": 1.0' in taken.out
    found = cli("api", "GET", "/v1/queues/mail/tasks?state=SUCCEEDED")
    assert [one["id"] for one in found.json["tasks"]] == ["a"]


def test_a_refusal_has_the_exit_code_of_its_kind(headrace_service: MemoryService) -> None:
    cli = Cli(headrace_service)

    assert cli("api", "GET", "/v1/queues/nowhere").code == 3
    assert cli("api", "GET", "v1/queues").code == 2
    assert cli("api", "POST", "/v1/queues", "{no json").code == 2
    assert cli("api", "DELETE", "/v1/tasks/nothing").code == 3
