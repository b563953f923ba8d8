"""The use cases over a deployment's tables, with the AWS rights of the current program.

The names of the tables come from the stack's outputs, read once in a process.  With
HEADRACE_TASKS_TABLE and HEADRACE_CONTROL_TABLE in the environment, the program needs neither that
call nor the right to make it.  The deployment's functions run the background jobs.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.client.address import TablesAddress
from headrace.domain.access import IAM
from headrace.domain.errors import InvalidRequest
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Store

if TYPE_CHECKING:
    from headrace.store.dynamo.connect import Deployment


def over_tables(address: TablesAddress, *, admin_key: str) -> tuple[Service, Store]:
    """Return the use cases over the tables of *address*, and the store.

    Raises InvalidRequest if the stack or its tables are missing, Unauthenticated without
    credentials, Forbidden without the right to read the stack, Unavailable without an answer.
    """
    from headrace.store.dynamo import DynamoStore  # noqa: PLC0415  a file needs no botocore
    from headrace.store.dynamo.connect import Deployment  # noqa: PLC0415  as above

    deployment = Deployment(address.region, address.stack)
    settings = replace(_settings(deployment), admin_key=admin_key, admin_name=IAM)
    store = DynamoStore(
        deployment.client(settings.dynamodb_url),
        tasks_table=settings.tasks_table,
        control_table=settings.control_table,
        sender=settings.sender,
    )
    # Old metrics are read from the lake; nothing is written there.
    lake = deployment.lake(settings.lake) if settings.lake else None
    objects = deployment.objects(settings.payloads) if settings.payloads else None
    return build(settings, store, lake=lake, objects=objects), store


def _settings(deployment: "Deployment") -> Settings:
    from headrace.store.dynamo.connect import CONTROL_TABLE, TASKS_TABLE  # noqa: PLC0415  as above

    try:
        settings = Settings.from_env()
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    if settings.tables_named:
        return settings
    facts = deployment.facts()
    ttl = facts.parameters.get("SettingsTtlSeconds")  # the stack decides, not the environment
    return replace(
        settings,
        tasks_table=facts.outputs[TASKS_TABLE],
        control_table=facts.outputs[CONTROL_TABLE],
        settings_ttl_seconds=float(ttl) if ttl else settings.settings_ttl_seconds,
        lake=settings.lake or facts.outputs.get("LakeAddress"),
        payloads=settings.payloads or facts.outputs.get("PayloadsAddress"),
        payload_offload_bytes=int(facts.parameters.get("PayloadOffloadBytes") or 0),
    )
