"""ministack, with its tables on AWS's own engine, and with what it lacks that Headrace needs.

1. It takes the OpenAPI document that SAM makes of template.yaml, but neither its methods that
   stand for ANY nor the answers of the gateway's own, which its API Gateway knows otherwise.
2. Where it asks what a caller may do (AUTH=true), it asks it of a batch of statements as one thing,
   not of each for what it does, and knows nothing of the keys that a condition may allow.
3. It has no alarms on sums of metrics: they are watched by their first metric alone.
4. Its connections are not encrypted, which the policy of the lake's bucket wants: it is told so.
5. Behind a domain name of one's own it tells functions the path with the stage, as without one.
6. It takes media types as CloudFormation writes them, with ~1 in place of a slash, literally.
7. It has firewalls, but no resource of CloudFormation that puts one before a stage.
8. SAM does not know its address as one of S3's, and so refuses templates that name nested ones.

Nothing else is changed, and nothing of Headrace.  Runs in .venv-e2e, alone, beside the DynamoDB
Local that HEADRACE_E2E_DYNAMODB names: ``AUTH=true GATEWAY_PORT=4566 python -P
tests/e2e/emulator.py``.
"""

# ruff: noqa: SLF001  it offers no other place to add these
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ministack.app import main
from ministack.core import iam_actions, iam_evaluator
from ministack.services import apigateway_v1, dynamodb, waf
from ministack.services.cloudformation import changesets, provisioners

# Not by PYTHONPATH: the functions that the emulator starts would see the project too.
sys.path.append(str(Path(__file__).parents[2]))
from tests.e2e.tables import Tables

_ANY = "x-amazon-apigateway-any-method"
_RESPONSES = "x-amazon-apigateway-gateway-responses"

_import_api = apigateway_v1._import_rest_api
_import_path = apigateway_v1._import_path_item

_matches = apigateway_v1._media_type_matches
_event = apigateway_v1._build_lambda_event_v1
_alarm = provisioners._cw_metric_alarm_record
_template = changesets._resolve_template
_checks = iam_actions.dynamodb_transaction_checks
_context = iam_actions.dynamodb_service_context
_resolve = iam_evaluator._resolve_condition_key

_TARGET = re.compile(r'(?:FROM|INTO|UPDATE)\s+"([^"]+)"(?:\."([^"]+)")?')
_LEADING = re.compile(r"^\s*(\S+)\s*=\s*(:\w+)")
_IN_TRANSACTIONS = {
    "ConditionCheck": "ConditionCheckItem",
    "Delete": "DeleteItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
}
_DOES = {"DELETE": "Delete", "INSERT": "Insert", "SELECT": "Select", "UPDATE": "Update"}


def import_path(api: str, path: str, item: dict[str, Any], *rest: object) -> None:
    """Read a path: a method that stands for ANY is every method that the path does not have."""
    every = {method: item[_ANY] for method in apigateway_v1._OPENAPI_HTTP_METHODS if _ANY in item}
    _import_path(api, path, {**every, **item}, *rest)


def import_api(document: dict[str, Any], *rest: object) -> str:
    """Read an API, then the answers of the gateway's own."""
    api: str = _import_api(document, *rest)
    for kind, response in document.get(_RESPONSES, {}).items():
        apigateway_v1._put_gateway_response(api, kind, response)
    return api


def matches(media_type: str | None, patterns: list[str] | None) -> bool:
    """Whether a body of this type goes to functions in base64."""
    written = [pattern.replace("~1", "/") for pattern in patterns or []]
    found: bool = _matches(media_type, written)
    return found


def event(*arguments: object, **more: object) -> dict[str, Any]:
    """Make the event that a function is given."""
    made: dict[str, Any] = _event(*arguments, **more)
    if made["headers"].get("host") in apigateway_v1._domain_names:
        made["requestContext"]["path"] = made["path"]
    return made


class KeyedAction(str):
    """An action of IAM on one item of a transaction, with the item's hash key."""

    __slots__ = ("leading",)
    leading: str | None


def checks(action: str, body: bytes, region: str, account: str) -> list[tuple[str, str]]:
    """List the actions and tables of a request, one for each item or statement."""
    if action == "dynamodb:TransactWriteItems":
        return [
            _item_check(kind, write, region, account)
            for item in json.loads(body)["TransactItems"]
            for kind, write in item.items()
        ]
    if action not in {"dynamodb:BatchExecuteStatement", "dynamodb:ExecuteStatement"}:
        found: list[tuple[str, str]] = _checks(action, body, region, account)
        return found
    request = json.loads(body)
    return [
        _check(one["Statement"], region, account) for one in request.get("Statements", [request])
    ]


def _item_check(kind: str, write: dict[str, Any], region: str, account: str) -> tuple[str, str]:
    does = KeyedAction(f"dynamodb:{_IN_TRANSACTIONS[kind]}")
    table = write["TableName"]
    does.leading = (write.get("Key") or write["Item"]).get(_hash_key(table), {}).get("S")
    return does, iam_actions._dynamodb_table_arn(table, region, account)


def _check(statement: str, region: str, account: str) -> tuple[str, str]:
    does = f"dynamodb:PartiQL{_DOES[statement.split(maxsplit=1)[0].upper()]}"
    target = _TARGET.search(statement)
    if target is None:
        raise ValueError(statement)
    table, index = target.groups()
    arn: str = iam_actions._dynamodb_table_arn(table, region, account)
    return does, f"{arn}/index/{index}" if index else arn


def context(body: bytes) -> dict[str, Any]:
    """The values that conditions may test in a request: also its hash keys.

    Those of a transaction are tested item by item: see `resolve`.
    """
    found: dict[str, Any] = _context(body)
    keys = sorted({key for key in _leading_keys(json.loads(body or b"{}")) if key is not None})
    return {**found, "dynamodb:LeadingKeys": keys} if keys else found


def _leading_keys(request: dict[str, Any]) -> Iterator[str | None]:
    if (table := request.get("TableName")) is not None:
        hash_key = _hash_key(table)
        for part in ("Key", "Item"):
            yield request.get(part, {}).get(hash_key, {}).get("S")
        if leading := _LEADING.match(request.get("KeyConditionExpression", "")):
            yield request["ExpressionAttributeValues"][leading[2]].get("S")
    requests = request.get("RequestItems", {})
    for table, requested in requests.items():
        for key in requested.get("Keys", []) if isinstance(requested, dict) else []:
            yield key.get(_hash_key(table), {}).get("S")
        for write in requested if isinstance(requested, list) else []:
            for one in write.values():
                yield one.get("Item", one.get("Key", {})).get(_hash_key(table), {}).get("S")


def _hash_key(table: str) -> str | None:
    name: str | None = dynamodb._tables.get(table, {}).get("pk_name")
    return name


def resolve(key: str, context: Any) -> Any:
    """The value of a condition's key in a request."""
    if key.lower() == "dynamodb:leadingkeys" and isinstance(context.action, KeyedAction):
        return [context.action.leading]
    return "true" if key.lower() == "aws:securetransport" else _resolve(key, context)


def alarm(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Make an alarm."""
    metrics = [one["MetricStat"] for one in properties.get("Metrics", []) if "MetricStat" in one]
    if metrics:
        rest = {key: value for key, value in properties.items() if key != "Metrics"}
        period, statistic = metrics[0]["Period"], metrics[0]["Stat"]
        properties = {**rest, **metrics[0]["Metric"], "Period": period, "Statistic": statistic}
    record: dict[str, Any] = _alarm(name, properties)
    return record


def template(parameters: dict[str, Any]) -> tuple[str | None, object]:
    """Read a template; nested templates get an address of S3, which is read by its path alone."""
    body, error = _template(parameters)
    here = f"http://127.0.0.1:{os.environ['GATEWAY_PORT']}/"
    return body and body.replace(here, "https://s3.us-east-1.amazonaws.com/"), error


def guard(_name: str, properties: dict[str, Any], _stack: str) -> tuple[str, dict[str, Any]]:
    """Put a firewall before a stage."""
    stage: str = properties["ResourceArn"]
    waf._associations[stage] = properties["WebACLArn"]
    return stage, {}


def unguard(stage: str, _properties: dict[str, Any]) -> None:
    """Take it away."""
    waf._associations.pop(stage, None)


if __name__ == "__main__":
    provisioners._RESOURCE_HANDLERS["AWS::WAFv2::WebACLAssociation"] = {
        "create": guard,
        "delete": unguard,
    }
    provisioners._cw_metric_alarm_record = alarm
    changesets._resolve_template = template
    iam_actions.dynamodb_transaction_checks = checks
    iam_actions.dynamodb_service_context = context
    iam_evaluator._resolve_condition_key = resolve
    apigateway_v1._media_type_matches = matches
    apigateway_v1._build_lambda_event_v1 = event
    apigateway_v1._import_path_item = import_path
    apigateway_v1._import_rest_api = import_api
    dynamodb.handle_request = Tables(os.environ["HEADRACE_E2E_DYNAMODB"]).handle_request
    main()
