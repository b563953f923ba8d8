"""A record of the stream says whether DynamoDB itself removed the task at its end."""

from typing import Any

from headrace.store.dynamo.stream import writes_of


def test_a_removal_by_anyone_but_the_table_is_a_delete() -> None:
    records: list[Any] = [
        {"dynamodb": {"SequenceNumber": "1", "ApproximateCreationDateTime": 1}, **identity}
        for identity in (
            {},
            {"userIdentity": None},
            {"userIdentity": "me"},
            {"userIdentity": {"principalId": "me"}},
            {"userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"}},
        )
    ]

    writes, _ = writes_of(records)

    assert [write.forgotten for write in writes] == [False, False, False, False, True]
