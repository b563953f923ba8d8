"""template.yaml: the tables the store is written for, least privilege, and the routes.

Long, because one template is to be read in one place.
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import pytest

from headrace.domain import cost, limits, plan
from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.limits import OFFLOAD_BYTES, SETTINGS_TTL_SECONDS
from headrace.history import counters
from headrace.history import recount as recount_record
from headrace.history.changelog import FILLED
from headrace.history.faults import FAULTS
from headrace.http import request
from headrace.http.events import proxy_event
from headrace.http.problems import CONTENT_TYPE, problem
from headrace.local.tables import Template, new_index
from headrace.ops.shared.push_status import SEATS
from headrace.ops.shared.stack_secret import IDS, SIGNING
from headrace.runtime.function import ALWAYS
from headrace.runtime.settings import Settings
from headrace.store import keys
from headrace.store.records import batches as batch_records
from headrace.store.records import indexes as index_records
from headrace.store.records import keys as key_records
from headrace.store.records import queues as queue_records
from headrace.store.records import schedules as schedule_records
from headrace.store.records.reaper import PARTS

RESOURCES: dict[str, Any] = {
    "Tasks": {"Fn::GetAtt": "TasksTable.Arn"},
    "TasksByState": {"Fn::Sub": "${TasksTable.Arn}/index/by_state"},
    "Control": {"Fn::GetAtt": "ControlTable.Arn"},
    "Books": {"Fn::GetAtt": "ControlTable.Arn"},
    "Lines": {"Fn::GetAtt": "ControlTable.Arn"},
    "Indexes": {"Fn::GetAtt": "ControlTable.Arn"},
    "Matches": {"Fn::GetAtt": "ControlTable.Arn"},
    "Callbacks": {"Fn::GetAtt": "TasksTable.Arn"},
    "Progress": {"Fn::GetAtt": "ControlTable.Arn"},
    "Seats": {"Fn::GetAtt": "ControlTable.Arn"},
    "Dispatcher": {"Fn::GetAtt": "DispatcherFunction.Arn"},
    "Reaper": {"Fn::GetAtt": "ReaperFunction.Arn"},
    "TasksStream": {"Fn::Sub": "${TasksTable.Arn}/stream/*"},
    "AdminKey": {"Fn::GetAtt": "AdminKey.Id"},
    "SessionSecret": {"Fn::GetAtt": "SessionSecret.Id"},
    "Lake": {"Fn::GetAtt": "Lake.Arn"},
    "LakeSeries": {"Fn::Sub": "${Lake.Arn}/series/*"},
    "LakeReports": {"Fn::Sub": "${Lake.Arn}/reports/*"},
    "LakeRaw": {"Fn::Sub": "${Lake.Arn}/raw/*"},
    "Payloads": {"Fn::Sub": "${Payloads.Arn}/*"},
    "PayloadNames": {"Fn::GetAtt": "Payloads.Arn"},
    "Failures": {"Fn::GetAtt": "RecorderFailures.Arn"},
}
# What only a door needs: who may come in, and the charts of long ago.
OF_DOORS = {"AdminKey", "Reaper", "SessionSecret", "Lake", "LakeReports", "LakeSeries"}
KEYS_NAMED = {"Null": {"dynamodb:LeadingKeys": "false"}}
CREATES_TASKS = {"dynamodb:PartiQLInsert"}  # as producers do; callbacks of batches are put


def properties(template: Template, resource: str) -> dict[str, Any]:
    found: dict[str, Any] = template["Resources"][resource]["Properties"]
    return found


def functions(template: Template) -> list[str]:
    return [
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
    ]


def statements(template: Template, function: str) -> Iterator[dict[str, Any]]:
    for policy in properties(template, function)["Policies"]:
        yield from policy["Statement"]


def actions(template: Template, function: str, sid: str) -> set[str]:
    return {
        action
        for statement in statements(template, function)
        if statement["Sid"] == sid
        for action in statement["Action"]
    }


def environment(template: Template, function: str) -> dict[str, Any]:
    found: dict[str, Any] = properties(template, function).get("Environment", {})
    variables: dict[str, Any] = found.get("Variables", {})
    return variables


def schema(of: dict[str, Any]) -> dict[str, str]:
    return {key["KeyType"]: key["AttributeName"] for key in of["KeySchema"]}


def types(table: dict[str, Any]) -> dict[str, str]:
    return {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}


def test_tasks_are_found_by_id_alone(template: Template) -> None:
    tasks = properties(template, "TasksTable")

    assert schema(tasks) == {"HASH": "task_id"}
    assert types(tasks) == {"task_id": "S", "queue#state": "S", "scheduled_at": "N"}


def test_one_index_has_a_queues_tasks_in_order_of_when_they_need_attention(
    template: Template,
) -> None:
    [index] = properties(template, "TasksTable")["GlobalSecondaryIndexes"]

    assert index["IndexName"] == "by_state"
    assert schema(index) == {"HASH": "queue#state", "RANGE": "scheduled_at"}


def test_the_index_holds_only_what_changes_with_its_keys(template: Template) -> None:
    [index] = properties(template, "TasksTable")["GlobalSecondaryIndexes"]

    assert index["Projection"]["ProjectionType"] == "INCLUDE"
    assert new_index(index["Projection"]["NonKeyAttributes"]) == [
        *("expires_at", "ttl", "due_at", "group_key")
    ]


def test_an_older_stack_can_keep_its_index(template: Template) -> None:
    [index] = properties(template, "TasksTable")["GlobalSecondaryIndexes"]

    condition, old, _ = index["Projection"]["NonKeyAttributes"]["Fn::If"]

    assert old == ["expires_at", "ttl"]
    assert template["Conditions"][condition] == {"Fn::Equals": [{"Ref": "KeepIndex"}, "true"]}


def test_the_tasks_stream_shows_both_sides_of_a_change(template: Template) -> None:
    tasks = properties(template, "TasksTable")

    assert tasks["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}


def test_the_control_table_has_a_general_key_and_no_stream(template: Template) -> None:
    control = properties(template, "ControlTable")

    assert schema(control) == {"HASH": "pk", "RANGE": "sk"}
    assert types(control) == {"pk": "S", "sk": "S"}
    assert "StreamSpecification" not in control


@pytest.mark.parametrize("table", ["TasksTable", "ControlTable"])
def test_a_table_is_paid_by_use_swept_by_ttl_and_survives_its_stack(
    template: Template, table: str
) -> None:
    swept = {"AttributeName": "ttl", "Enabled": True}

    assert properties(template, table)["BillingMode"] == "PAY_PER_REQUEST"
    assert properties(template, table)["TimeToLiveSpecification"] == swept
    assert template["Resources"][table]["DeletionPolicy"] == "RetainExceptOnCreate"
    assert template["Resources"][table]["UpdateReplacePolicy"] == "Retain"


def test_every_permission_names_its_actions_and_its_resource(template: Template) -> None:
    for function in functions(template):
        for statement in statements(template, function):
            assert statement["Effect"] == "Allow"
            assert isinstance(statement["Action"], list)
            assert not [action for action in statement["Action"] if "*" in action]
            assert statement["Resource"] == RESOURCES[statement["Sid"]]


def test_no_function_may_scan(template: Template) -> None:
    for function in functions(template):
        for sid in RESOURCES:
            assert "dynamodb:Scan" not in actions(template, function, sid)


def test_the_reaper_may_do_what_the_api_may_except_enqueue(template: Template) -> None:
    api = {sid: actions(template, "ApiFunction", sid) for sid in {*RESOURCES} - OF_DOORS}
    reaper = {sid: actions(template, "ReaperFunction", sid) for sid in RESOURCES if api.get(sid)}
    api = {sid: allowed for sid, allowed in api.items() if allowed}

    assert reaper.pop("Payloads") == {"s3:DeleteObject", "s3:PutObject"}  # what no task refers to
    assert api.pop("Payloads") == {"s3:GetObject", "s3:PutObject"}
    assert reaper == api | {"Tasks": api["Tasks"] - CREATES_TASKS}


@pytest.mark.parametrize(
    ("variable", "secret", "knowing"),
    [
        (
            "HEADRACE_ADMIN_KEY_ARN",
            "AdminKey",
            ["ApiFunction", "ConsoleFunction", "AuthorizerFunction"],
        ),
        ("HEADRACE_SESSION_SECRET_ARN", "SessionSecret", ["ConsoleFunction"]),
    ],
)
def test_a_secret_is_made_by_the_stack_and_read_by_those_that_need_it(
    template: Template, variable: str, secret: str, knowing: list[str]
) -> None:
    reported = {name: environment(template, name).get(variable) for name in functions(template)}
    allowed = [name for name in functions(template) if actions(template, name, secret)]

    assert {name: reported[name] for name in knowing} == {
        name: {"Fn::GetAtt": f"{secret}.Id"} for name in knowing
    }
    assert [name for name in reported if reported[name]] == allowed == knowing
    assert properties(template, secret)["GenerateSecretString"]["PasswordLength"] >= 32
    assert secret not in template["Parameters"]


def test_no_function_has_a_secret_in_its_environment(template: Template) -> None:
    secret = {"HEADRACE_ADMIN_KEY", "HEADRACE_SESSION_SECRET"}

    for name in functions(template):
        assert not secret & environment(template, name).keys()


@pytest.mark.parametrize("name", ["HEADRACE_METRICS", "HEADRACE_SETTINGS_TTL_SECONDS"])
def test_every_function_is_told(template: Template, name: str) -> None:
    assert name in template["Globals"]["Function"]["Environment"]["Variables"]


def test_settings_are_cached_no_longer_than_a_deleted_queue_waits_for(template: Template) -> None:
    ttl = template["Parameters"]["SettingsTtlSeconds"]

    assert (ttl["MinValue"], ttl["MaxValue"]) == SETTINGS_TTL_SECONDS
    with pytest.raises(ValueError, match=r"HEADRACE_SETTINGS_TTL_SECONDS .* from 0 to 60"):
        Settings.from_env({"HEADRACE_SETTINGS_TTL_SECONDS": "61"})


def test_a_request_waits_in_a_function_no_longer_than_the_template_says(
    template: Template,
) -> None:
    parameter = template["Parameters"]["LongPollSeconds"]

    assert 0 <= parameter["Default"] <= 5  # each waiting request takes up one execution
    assert parameter["MaxValue"] == limits.WAIT_SECONDS
    assert template["Globals"]["Function"]["Environment"]["Variables"][
        "HEADRACE_LONG_POLL_SECONDS"
    ] == {"Ref": "LongPollSeconds"}
    env = {"HEADRACE_LONG_POLL_SECONDS": str(parameter["Default"])}
    assert Settings.from_env(env).long_poll_seconds == parameter["Default"]
    with pytest.raises(ValueError, match=r"HEADRACE_LONG_POLL_SECONDS .* from 0 to 20"):
        Settings.from_env({"HEADRACE_LONG_POLL_SECONDS": "21"})


def test_the_console_may_do_no_more_than_the_api(template: Template) -> None:
    for sid in {*RESOURCES} - {"SessionSecret", "LakeReports"}:  # its pages alone have a proof
        assert actions(template, "ConsoleFunction", sid) <= actions(template, "ApiFunction", sid)


def test_the_authorizer_may_only_look_up_keys(template: Template) -> None:
    by_sid = {each["Sid"]: each for each in statements(template, "AuthorizerFunction")}
    statement = by_sid["Control"]

    assert set(by_sid) == {"AdminKey", "Control"}
    assert statement["Action"] == ["dynamodb:GetItem"]
    leading = {"dynamodb:LeadingKeys": [key_records.KIND]}
    assert statement["Condition"] == KEYS_NAMED | {"ForAllValues:StringEquals": leading}


def test_api_gateway_asks_the_authorizer_and_keeps_its_answer_for_a_minute(
    template: Template,
) -> None:
    auth = properties(template, "Api")["Auth"]
    key = auth["Authorizers"][auth["DefaultAuthorizer"]]

    assert key["FunctionArn"] == {"Fn::GetAtt": "AuthorizerFunction.Arn"}
    assert key["Identity"]["ReauthorizeEvery"] == 60
    assert properties(template, "AuthorizerFunction")["Handler"] == "authorizer.handler"


@pytest.mark.parametrize(
    ("header", "requested"),
    [
        ("Bearer abc", True),
        ("bearer  abc ", True),
        ("Bearer", False),
        ("Bearer ", False),
        ("Basic abc", False),
        ("abc", False),
    ],
)
def test_the_authorizer_is_asked_only_about_what_may_be_a_key(
    template: Template, header: str, *, requested: bool
) -> None:
    identity = properties(template, "Api")["Auth"]["Authorizers"]["Key"]["Identity"]

    assert bool(re.match(identity["ValidationExpression"], header)) is requested
    if requested:
        assert request.bearer(header) == "abc"
    else:
        with pytest.raises(Unauthenticated):
            request.bearer(header)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("UNAUTHORIZED", "unauthenticated"),
        ("ACCESS_DENIED", "unauthenticated"),
        ("AUTHORIZER_FAILURE", "unavailable"),
        ("DEFAULT_5XX", "unavailable"),
        ("INTEGRATION_FAILURE", "unavailable"),
        ("INTEGRATION_TIMEOUT", "unavailable"),
        ("INVALID_SIGNATURE", "not_found"),
        ("MISSING_AUTHENTICATION_TOKEN", "not_found"),
        ("REQUEST_TOO_LARGE", "payload_too_large"),
        ("RESOURCE_NOT_FOUND", "not_found"),
        ("WAF_FILTERED", "forbidden"),
        ("THROTTLED", "rate_limited"),
    ],
)
def test_what_api_gateway_refuses_by_itself_has_the_shape_of_our_errors(
    template: Template, kind: str, code: str
) -> None:
    answer = properties(template, "Api")["GatewayResponses"][kind]
    body = json.loads(answer["ResponseTemplates"]["application/json"])
    headers = answer["ResponseParameters"]["Headers"]
    known: list[type[HeadraceError]] = [
        Forbidden,
        NotFound,
        PayloadTooLarge,
        RateLimited,
        Unauthenticated,
        Unavailable,
    ]
    (error,) = [error(body["detail"]) for error in known if error.code == code]
    ours = problem(error, request_id="$context.requestId", where="")

    assert (body, answer["StatusCode"]) == (json.loads(ours.body), ours.status)
    fixed = {name: value[1:-1] for name, value in headers.items() if name != "X-Request-Id"}
    assert fixed.items() >= {"Content-Type": CONTENT_TYPE, **ours.headers, **ALWAYS}.items()
    assert headers["X-Request-Id"] == "context.requestId"
    assert headers["X-Consumed-Units"] == "'w=0, r=0'"


def test_what_else_api_gateway_refuses_keeps_its_status_and_has_our_shape(
    template: Template,
) -> None:
    answers = properties(template, "Api")["GatewayResponses"]
    other = answers["DEFAULT_4XX"]
    text = other["ResponseTemplates"]["application/json"]
    body = json.loads(text.replace("$context.error.messageString", '"any"'))

    assert "StatusCode" not in other
    assert body == {
        "type": "about:blank",
        "title": "Invalid request",
        "code": "invalid_request",
        "detail": "any",
        "errors": [],
    }
    for answer in answers.values():
        headers = answer["ResponseParameters"]["Headers"]
        assert {name: f"'{value}'" for name, value in ALWAYS.items()}.items() <= headers.items()


def test_the_api_has_every_v1_path_and_quantumleaps(template: Template) -> None:
    events = properties(template, "ApiFunction")["Events"].values()

    assert {event["Type"] for event in events} == {"Api"}
    assert {event["Properties"]["RestApiId"]["Ref"] for event in events} == {"Api"}
    of_all = [(event["Properties"]["Method"], event["Properties"]["Path"]) for event in events]
    assert {
        ("ANY", "/v1/{proxy+}"),
        ("POST", "/v2/notify"),
        ("ANY", "/management/queue/{proxy+}"),
    } <= set(of_all)


def test_the_largest_body_fits_into_an_event_whatever_is_in_it(template: Template) -> None:
    headers = {"Authorization": '"' * 5_000, "X-More": "\\" * 5_000}  # they may have 10 KB in all
    largest = '"' * limits.BODY_BYTES
    event = proxy_event(
        "POST", "/v1/queues/mail/tasks", request_id="r", headers=headers, body=largest.encode()
    )

    assert properties(template, "Api")["BinaryMediaTypes"] == ["*~1*"]  # all bodies in base64
    assert event["isBase64Encoded"] is True
    assert len(json.dumps(event)) < limits.LAMBDA_BYTES - limits.BODY_BYTES // 10


def test_what_needs_no_key_is_not_authorized(template: Template) -> None:
    events = properties(template, "ApiFunction")["Events"].values()

    without = {
        event["Properties"]["Path"]
        for event in events
        if event["Properties"].get("Auth", {}).get("Authorizer") == "NONE"
    }
    assert without == request.OPEN_PATHS


def test_the_reaper_comes_every_minute_and_is_done_before_the_next(template: Template) -> None:
    reaper = properties(template, "ReaperFunction")
    [event] = reaper["Events"].values()

    assert event["Type"] == "Schedule"
    assert event["Properties"]["Schedule"] == "rate(1 minute)"
    assert reaper["Timeout"] < 60


def test_the_reaper_may_run_itself_again_and_nothing_else(template: Template) -> None:
    again = properties(template, "ReaperRunsAgain")
    (statement,) = again["PolicyDocument"]["Statement"]

    assert again["Roles"] == [{"Ref": "ReaperFunctionRole"}]
    assert statement["Action"] == ["lambda:InvokeFunction"]
    assert statement["Resource"] == {"Fn::GetAtt": "ReaperFunction.Arn"}
    reserved = properties(template, "ReaperFunction")["ReservedConcurrentExecutions"]
    assert reserved["Fn::If"][1] == PARTS


def test_the_scheduler_comes_every_minute_and_is_done_before_the_next(template: Template) -> None:
    scheduler = properties(template, "SchedulerFunction")
    [event] = scheduler["Events"].values()

    assert (scheduler["Handler"], event["Type"]) == ("scheduler.handler", "Schedule")
    assert event["Properties"]["Schedule"] == "rate(1 minute)"
    assert scheduler["Timeout"] < 60


def test_the_scheduler_makes_and_takes_back_tasks_and_notes_its_progress(
    template: Template,
) -> None:
    by_sid = {each["Sid"]: each for each in statements(template, "SchedulerFunction")}
    dedupe = plan.holder("*", "k", value=None, expects=None).kind

    assert set(by_sid) == {"Tasks", "Control", "Progress", "Payloads"}
    assert by_sid["Payloads"]["Action"] == ["s3:PutObject"]
    assert "dynamodb:UpdateItem" not in by_sid["Tasks"]["Action"]
    assert by_sid["Control"]["Action"] == ["dynamodb:GetItem", "dynamodb:Query"]
    assert by_sid["Progress"]["Action"] == ["dynamodb:DeleteItem", "dynamodb:PutItem"]
    written = [IDS, schedule_records.PROGRESS, dedupe]
    assert by_sid["Progress"]["Condition"] == KEYS_NAMED | {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": written}
    }
    assert by_sid["Control"]["Condition"] == KEYS_NAMED | {
        "ForAllValues:StringLike": {
            "dynamodb:LeadingKeys": [
                IDS,
                queue_records.KIND,
                schedule_records.KIND,
                *written[1:],
            ]
        }
    }


def test_a_dispatcher_may_run_itself_again_and_the_functions_that_are_allowed(
    template: Template,
) -> None:
    again, targets = (
        properties(template, name)["PolicyDocument"]["Statement"][0]
        for name in ("DispatcherRunsAgain", "DispatcherTargets")
    )

    assert again["Action"] == targets["Action"] == ["lambda:InvokeFunction"]
    assert again["Resource"] == {"Fn::GetAtt": "DispatcherFunction.Arn"}
    assert targets["Resource"] == {"Ref": "PushAllowedFunctions"}
    assert template["Resources"]["DispatcherTargets"]["Condition"] == "PushesToFunctions"
    [event] = properties(template, "DispatcherFunction")["Events"].values()
    assert event["Properties"]["Schedule"] == "rate(1 minute)"


def test_a_dispatcher_writes_what_deliveries_do_and_its_seats(template: Template) -> None:
    by_sid = {each["Sid"]: each for each in statements(template, "DispatcherFunction")}
    written = by_sid["Seats"]["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
    read = by_sid["Control"]["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]

    assert set(by_sid) == {
        *("Tasks", "TasksByState", "Control", "Seats", "Payloads", "PayloadNames")
    }
    assert "dynamodb:PartiQLInsert" not in by_sid["Tasks"]["Action"]
    assert {SEATS, SIGNING} <= set(written) < set(read)
    assert queue_records.KIND in set(read) - set(written)


def test_the_recorder_reads_the_stream_and_writes_its_books_and_nothing_else(
    template: Template,
) -> None:
    by_sid = {each["Sid"]: each for each in statements(template, "RecorderFunction")}
    reads, writes = by_sid["Control"], by_sid["Books"]

    assert set(by_sid) == {
        *("TasksStream", "Control", "Books", "Lines", "Callbacks"),
        *("LakeRaw", "Payloads", "Dispatcher", "Failures", "Indexes", "Matches"),
    }
    assert by_sid["Indexes"]["Action"] == ["dynamodb:Query"]
    assert by_sid["Indexes"]["Condition"] == KEYS_NAMED | {
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [index_records.KIND]}
    }
    for function in ("RecorderFunction", "ReaperFunction"):
        (matches,) = [one for one in statements(template, function) if one["Sid"] == "Matches"]
        assert matches["Action"] == ["dynamodb:BatchWriteItem"]
        assert matches["Condition"] == KEYS_NAMED | {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [keys.MATCHES.format("*")]}
        }
    assert by_sid["Payloads"]["Action"] == ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    assert by_sid["Dispatcher"]["Action"] == ["lambda:InvokeFunction"]
    assert by_sid["Callbacks"]["Action"] == [
        *("dynamodb:BatchGetItem", "dynamodb:PartiQLInsert", "dynamodb:PutItem")
    ]
    assert by_sid["LakeRaw"]["Action"] == ["s3:PutObject"]
    assert reads["Action"] == ["dynamodb:GetItem"]
    assert writes["Action"] == ["dynamodb:PutItem"]
    assert by_sid["Lines"]["Action"] == ["dynamodb:UpdateItem"]
    assert by_sid["Lines"]["Condition"] == KEYS_NAMED | {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [keys.LINES.format("*")]}
    }
    batches = [batch_records.KIND, batch_records.MEMBERS]
    known = [
        *(*batches, batch_records.CALLBACKS, FAULTS, IDS, queue_records.KIND, counters.BUFFER),
        *(recount_record.DONE, recount_record.OPEN, counters.TOTALS, keys.DELIVERED),
    ]
    assert reads["Condition"] == KEYS_NAMED | {
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": known}
    }
    assert writes["Condition"] == KEYS_NAMED | {
        "ForAllValues:StringLike": {
            "dynamodb:LeadingKeys": [
                *(*batches, FAULTS, IDS, counters.BUFFER, counters.TOTALS, f"{counters.SERIES}*"),
            ]
        }
    }


def test_the_stream_comes_in_batches_of_one_known_shard_that_may_come_again(
    template: Template,
) -> None:
    mapping = properties(template, "RecorderMapping")

    assert mapping["FunctionName"] == {"Ref": "RecorderFunction"}
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": "TasksTable.StreamArn"}
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    # Without a window Lambda does not name the shard; two at a time would overtake each other.
    assert mapping["TumblingWindowInSeconds"] > 0
    assert mapping["ParallelizationFactor"] == 1
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BisectBatchOnFunctionError"] is True
    # Six hours, as docs and help say; the stream keeps a day.
    assert mapping["MaximumRecordAgeInSeconds"] == 6 * 3_600
    failed = mapping["DestinationConfig"]["OnFailure"]["Destination"]
    assert failed == {"Fn::GetAtt": "RecorderFailures.Arn"}
    assert properties(template, "RecorderFunction")["Handler"] == "recorder.handler"


@pytest.mark.parametrize("table", ["TasksTable", "ControlTable"])
def test_a_table_can_be_brought_back_protected_and_encrypted_with_a_key_of_ones_own(
    template: Template, table: str
) -> None:
    of = properties(template, table)

    assert of["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert of["DeletionProtectionEnabled"] == {"Fn::If": ["Protected", True, False]}
    assert of["SSESpecification"]["Fn::If"][:2] == [
        "OwnKey",
        {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": {"Ref": "KmsKeyArn"}},
    ]


@pytest.mark.parametrize("bucket", ["Lake", "Payloads"])
def test_a_bucket_is_nobody_elses(template: Template, bucket: str) -> None:
    lake = properties(template, bucket)
    (denied,) = properties(template, f"{bucket}Policy")["PolicyDocument"]["Statement"]

    assert set(lake["PublicAccessBlockConfiguration"].values()) == {True}
    assert lake["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert "BucketEncryption" in lake
    assert (denied["Effect"], denied["Action"], denied["Principal"]) == ("Deny", "s3:*", "*")
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_a_payload_is_deleted_a_day_after_it_was_removed_and_never_by_its_age(
    template: Template,
) -> None:
    payloads = properties(template, "Payloads")
    removed, unfinished = payloads["LifecycleConfiguration"]["Rules"]

    assert payloads["VersioningConfiguration"] == {"Status": "Enabled"}
    assert removed["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}
    for rule in (removed, unfinished):
        assert not {"ExpirationInDays", "ExpirationDate", "Transitions"} & rule.keys()


def test_the_size_from_which_payloads_are_kept_in_s3_is_one_that_settings_take(
    template: Template,
) -> None:
    bytes_ = template["Parameters"]["PayloadOffloadBytes"]

    assert bytes_["Default"] == cost.OFFLOAD_BYTES_DEFAULT
    assert bytes_["MaxValue"] == OFFLOAD_BYTES[1]
    for value in (0, bytes_["Default"], bytes_["MaxValue"]):
        env = {"HEADRACE_PAYLOAD_OFFLOAD_BYTES": str(value)}
        assert Settings.from_env(env).payload_offload_bytes == value


def test_all_logs_end_some_day_and_every_function_has_its_own(template: Template) -> None:
    groups = {
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Logs::LogGroup"
        and resource["Properties"]["RetentionInDays"] == {"Ref": "LogRetentionDays"}
    }
    own = [
        properties(template, name)["LoggingConfig"]["LogGroup"]["Ref"]
        for name in functions(template)
    ]

    assert len(set(own)) == len(own)
    assert groups == {*own, "AccessLogs"}


def test_the_stage_waits_for_the_role_that_writes_its_logs(template: Template) -> None:
    account = template["Resources"]["ApiGatewayAccount"]

    assert account["DependsOn"] == "Api"
    logs = properties(template, "Api")["Variables"]["logs"]
    assert logs == {"Fn::If": ["CreateLogRole", {"Ref": "ApiGatewayAccount"}, "existing"]}


def test_access_logs_show_no_key_and_no_query(template: Template) -> None:
    shown = properties(template, "Api")["AccessLogSetting"]["Format"]

    assert json.loads(shown)["status"] == "$context.status"
    assert not re.search("authorization|header|query|context.path", shown.lower())


def test_spark_costs_nothing_unless_it_is_asked_for(template: Template) -> None:
    spark = ("AWS::EMRServerless", "AWS::Glue", "AWS::Scheduler")
    conditions = {
        resource.get("Condition")
        for resource in template["Resources"].values()
        if resource["Type"].startswith(spark)
    }

    assert conditions == {"Spark", "Emr", "Glue"}
    assert template["Parameters"]["SparkRuntime"]["Default"] == "none"
    assert properties(template, "SparkApplication")["AutoStopConfiguration"]["Enabled"] is True
    assert "MaximumCapacity" in properties(template, "SparkApplication")


def test_spark_never_writes_what_the_recorder_wrote(template: Template) -> None:
    (policy,) = properties(template, "SparkRole")["Policies"]
    by_sid = {each.get("Sid"): each for each in policy["PolicyDocument"]["Statement"]}

    written = {one["Fn::Sub"] for one in by_sid["Write"]["Resource"]}
    (filled,) = (one for one in written if "/raw/" in one)
    assert written - {filled} == {
        f"${{Lake.Arn}}/{part}/*" for part in ("logs", "reports", "series", "state", "tables")
    }
    hour = "${Lake.Arn}/raw/dt=2026-11-21/hh=08"
    assert fnmatch(f"{hour}/{FILLED}01795219200000-a1b2c3d4-00000.json.gz", filled)
    assert not fnmatch(f"{hour}/shardId-00000001795219200000-a1b2c3d4-1.json.gz", filled)
