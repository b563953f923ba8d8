"""What the page for people who come from SQS shows of theirs are calls that boto3 takes."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "coming-from" / "sqs.md"
ADDRESS = "https://sqs.example.com/1/orders"
ARN = "arn:aws:sqs:eu-west-1:1:orders"


class _Ends(Exception):
    """A consumer would receive for ever."""


def test_boto3_takes_each_call_with_its_arguments() -> None:
    blocks = re.findall(
        r"^```python\n(?!# shop)(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    calls: list[str] = []

    def answer(model: Any, **_: Any) -> tuple[SimpleNamespace, dict[str, Any]]:
        """In place of AWS, once boto3 has checked the arguments."""
        calls.append(model.name)
        if model.name == "ReceiveMessage" and calls.count(model.name) == 2:
            raise _Ends
        message = {"Body": "{}", "ReceiptHandle": "h"}
        return SimpleNamespace(status_code=200), {"Messages": [message]}

    clients = {
        name: boto3.client(
            name, region_name="eu-west-1", aws_access_key_id="-", aws_secret_access_key="-"
        )
        for name in ("sqs", "scheduler")
    }
    for client in clients.values():
        client.meta.events.register("before-call", answer)
    names = {
        **clients,
        "json": json,
        "work": lambda _: None,
        "body": "{}",
        "handle": "h",
        "received": 1,
        **dict.fromkeys(("orders", "orders_fifo", "dead", "films"), ADDRESS),
        **dict.fromkeys(("orders_arn", "dead_arn", "role_arn"), ARN),
    }

    for block in blocks:
        if block.startswith("while True"):
            with pytest.raises(_Ends):
                exec(block, names)  # noqa: S102  that is what is tested
        else:
            exec(block, names)  # noqa: S102  likewise

    assert calls == [
        "SendMessage",
        "ReceiveMessage",
        "DeleteMessage",
        "ReceiveMessage",
        "SendMessage",
        "SetQueueAttributes",
        "ChangeMessageVisibility",
        "SendMessage",
        "CreateSchedule",
        "ReceiveMessage",
        "StartMessageMoveTask",
        "GetQueueAttributes",
        "ChangeMessageVisibility",
    ]
