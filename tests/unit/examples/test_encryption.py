"""The example codec: what leaves the producer is ciphertext, what a worker reads is not."""

import pytest
from cryptography.fernet import Fernet

from examples.encryption.codec import EncryptedCodec
from headrace import Client, Report
from headrace.client.codec import Codec, Unreadable
from tests.unit.client.network import AT, Network, enqueued, reply
from tests.unit.client.test_calls import TASK

SECRET = "the launch is on friday"
KEY = Fernet.generate_key()


def client_on(wire: Network, codec: Codec) -> Client:
    return Client("http://queue.test", "hr_secret", transport=wire, codec=codec)


def test_the_service_sees_no_word_of_a_payload() -> None:
    wire = Network([enqueued])
    client_on(wire, EncryptedCodec([KEY])).enqueue("mail", {"text": SECRET})
    assert SECRET not in wire.requests[0].content.decode()

    sent = wire.body()["tasks"][0]["payload"]
    leased = {**TASK, "payload": sent, "lease": {"id": "l", "expires_at": AT}}
    wire = Network([reply(200, {"tasks": [leased], "now": AT, "poll_after_seconds": 1})])
    (task,) = client_on(wire, EncryptedCodec([KEY])).dequeue("mail").tasks
    assert task.payload == {"text": SECRET}


def test_results_and_moved_payloads_are_encrypted_too() -> None:
    wire = Network([reply(200, {"results": [], "now": AT})])
    client = client_on(wire, EncryptedCodec([KEY]))
    for report in (
        Report(task_id="t", lease_id="l", status="SUCCEEDED", result=SECRET),
        Report(task_id="t", lease_id="l", status="INFLIGHT", progress=SECRET),
        Report(task_id="t", lease_id="l", status="MOVED", to_queue="next", payload=SECRET),
    ):
        client.report("mail", [report])
        assert SECRET not in wire.requests[-1].content.decode()


def test_an_old_key_reads_until_it_is_dropped() -> None:
    new = Fernet.generate_key()
    text = EncryptedCodec([KEY]).encode(2**70)
    assert EncryptedCodec([new, KEY]).decode(text) == 2**70
    with pytest.raises(Unreadable, match="not encrypted with any of these keys"):
        EncryptedCodec([new]).decode(text)
