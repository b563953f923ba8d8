"""What a target may be, and what its answers mean."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.domain.errors import InvalidRequest
from headrace.domain.lifecycle import Action
from headrace.domain.push import (
    PushHosts,
    PushRules,
    Target,
    function_fault,
    headers_faults,
    url_fault,
)
from headrace.domain.push_messages import (
    PushLimit,
    PushReport,
    TargetAnswer,
    report_of,
    retry_after_seconds,
)
from headrace.domain.retry import RetryStrategy

NOW = datetime(2026, 11, 23, 17, tzinfo=UTC)
NOBODY = PushHosts()
HOSTS = PushHosts.parse("inside.example, Printer.example:8080, 10.1.2.3, [::1]:9000")
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:resize"
RETRY = RetryStrategy(base_seconds=20, jitter=0.1)


# ------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("HTTPS://Example.COM:443/a/b?c=d&e=%20", ""),
        ("https://[2606:4700:4700::1111]/", ""),
        ("", "must not be empty"),
        ("/a", "https://"),
        ("http://example.com/", "https://"),
        ("https://example.com:8443/", "port 443"),
        ("https://example.com:x/", "address"),
        ("https:///a", "host"),
        ("https://user:word@example.com/", "user"),
        ("https://example.com/#", "fragment"),
        ("https://example.com/a b", "visible"),
        ("https://example.com\\@10.0.0.1/", "visible"),
        ("https://exa%6dple.com/", "host"),
        ("https://a..example/", "host"),
        (f"https://example.com/{'a' * 2048}", "bytes"),
        ("https://169.254.169.254/latest/meta-data/", "private"),
        ("https://[::ffff:127.0.0.1]/", "private"),
        ("https://[2002:7f00:1::]/", "private"),
        ("https://[fe80::1%25eth0]/", "private"),
        ("https://2130706433/", "in full"),
        ("https://0x7f.1/", "in full"),
    ],
)
def test_what_is_no_target(url: str, why: str) -> None:
    fault = url_fault(url, NOBODY)
    assert why in (fault or "")
    assert bool(fault) is bool(why)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://INSIDE.example.:8123/a", True),
        ("https://printer.example:8080/", True),
        ("http://printer.example/", False),
        ("https://printer.example:8081/", False),
        ("http://10.1.2.3:5000/", True),
        ("http://[::1]:9001/", False),
        ("http://sub.inside.example/", False),
        ("http://inside.example.evil.example/", False),
    ],
)
def test_hosts_of_the_deployment_may_be_private(url: str, *, allowed: bool) -> None:
    assert (url_fault(url, HOSTS) is None) is allowed


@pytest.mark.parametrize(
    ("arn", "allowed", "fault"),
    [
        (ARN, ["arn:aws:lambda:*:123456789012:function:*"], None),
        (f"{ARN}:live", [f"{ARN}:*"], None),
        (ARN, [], "HEADRACE_PUSH_FUNCTIONS"),
        (ARN, [f"{ARN}2", "arn:aws:lambda:eu-west-1:1*:function:other"], "HEADRACE_PUSH"),
        ("resize", ["*"], "ARN"),
        (f"{ARN}\n", ["*"], "ARN"),
    ],
)
def test_functions_are_those_of_the_deployment(
    arn: str, allowed: list[str], fault: str | None
) -> None:
    found = function_fault(arn, allowed)
    assert found is None if fault is None else fault in (found or "")


@pytest.mark.parametrize(
    ("headers", "where"),
    [
        ({f"X-{n}": "" for n in range(21)}, None),
        ({"X": "a" * 4096}, None),
        ({"Host": "a"}, "Host"),
        ({"Transfer-Encoding": "chunked"}, "Transfer-Encoding"),
        ({"Webhook-Id": "a"}, "Webhook-Id"),
        ({"A B": "a"}, "A B"),
        ({"A": "b\r\nC: d"}, "A"),
        ({"A": " b"}, "A"),
        ({"A": "é"}, "A"),
        ({"A": "1", "a": "2"}, "a"),
    ],
)
def test_headers_that_no_target_may_have(headers: dict[str, str], where: str | None) -> None:
    assert [name for name, _ in headers_faults(headers)] == [where]


# --------------------------------------------------------------------------------------- answers


def report(status: int | None, **more: Any) -> PushReport:
    return report_of(TargetAnswer(status, **more), RETRY, now=NOW, spread=0.5)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_a_success(status: int) -> None:
    assert report(status, body=b'{"a": 1}') == PushReport(Action.SUCCEED, result='{"a": 1}')


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b"OK", None),
        (b"\xff", None),
        (b"NaN", None),
        (b"[" * 100_000, None),
        (b' "text" ', ' "text" '),
        (json.dumps("a" * (32 * 1024 - 2)).encode(), json.dumps("a" * (32 * 1024 - 2))),
        (json.dumps("a" * (32 * 1024 - 1)).encode(), None),
    ],
)
def test_what_is_no_result_is_none(body: bytes, result: str | None) -> None:
    assert report(200, body=body).result == result


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_target_costs_no_attempt(status: int) -> None:
    assert report(status, retry_after="7").action is Action.RELEASE
    assert report(status, retry_after="7").delay == 7
    assert report(status).delay == 20  # the backoff before the first retry
    assert report(status, retry_after="soon").delay == 20


@pytest.mark.parametrize("status", [400, 410, 413, 422])
def test_what_is_about_this_task_is_rejected(status: int) -> None:
    made = report(status, body=b"no such city")
    assert (made.action, made.retryable) == (Action.FAIL, False)
    assert (made.error, made.detail) == (f"HTTP {status}", "no such city")


@pytest.mark.parametrize("status", [301, 401, 404, 409, 500])
def test_any_other_answer_is_a_failure_that_may_mend(status: int) -> None:
    made = report(status, body=b"\xff" * 5000)
    assert (made.action, made.retryable, made.delay) == (Action.FAIL, True, None)
    assert len(made.detail) == 1000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        (" 120 ", 120),
        ("3601", 3600),
        ("9" * 50, 3600),
        ("Mon, 23 Nov 2026 17:00:30 GMT", 30),
        ("Mon, 23 Nov 2026 16:00:00 GMT", 0),
        ("Mon, 23 Nov 2026 20:00:00 GMT", 3600),
        (None, None),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        ("Mon, 99999999999999999999 Nov 2026 17:00:30 GMT", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(text, NOW) == seconds
    assert retry_after_seconds(text, NOW + timedelta()) == seconds


@pytest.mark.parametrize("text", ["a:x", "a/b", "user@host", "a..b", ":80"])
def test_a_list_of_hosts_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be hosts with commas"):
        PushHosts.parse(f"inside.example, {text}")


def test_a_masked_target_gets_its_headers_back_from_what_it_was_before() -> None:
    before = Target(url="https://example.com/", headers={"Authorization": "secret"})
    masked = before.mask_headers()

    assert "secret" not in str(masked)
    assert masked.unmask_headers(before) == before
    with pytest.raises(InvalidRequest, match="is masked: give its value"):
        masked.unmask_headers(None)


@pytest.mark.parametrize(
    ("target", "field"),
    [
        (Target(), "target"),
        (Target(url="https://example.com/", function=ARN), "target"),
        (Target(url="https://example.com:0/"), "target.url"),
        (Target(function="resize"), "target.lambda"),
        (Target(function=ARN, headers={"a": "b"}), "target.headers"),
        (Target(url="https://example.com/", headers={"host": "b"}), "target.headers.host"),
        (Target(url="https://example.com/", headers={"a": "b" * 9_000}), "target.headers"),
    ],
)
def test_a_target_that_is_wrong_names_the_field(target: Target, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        PushRules(functions=("*",)).check(target)

    assert [error.field for error in refused.value.errors] == [field]


def test_a_date_without_a_zone_is_utc() -> None:
    assert retry_after_seconds("Mon, 23 Nov 2026 17:00:30 -0000", NOW) == 30


def test_a_dispatcher_halves_once_and_grows_by_one_a_second() -> None:
    limit = PushLimit(8)
    limit.halve(10, sent_at=9)
    limit.halve(10, sent_at=9)  # an answer to what was sent before it halved

    assert (limit.allowed(10), limit.backs_off(10), limit.seconds_to_next(10)) == (4, True, 1.0)
    assert limit.allowed(12.5) == 6
    assert limit.seconds_to_next(12.5) == 0.5
    assert (limit.allowed(14), limit.backs_off(14), limit.seconds_to_next(14)) == (8, False, 0.0)


@pytest.mark.parametrize(
    ("halved", "most", "allowed"), [(False, 20, 20), (True, 20, 4), (True, 2, 2)]
)
def test_a_dispatcher_that_backs_off_goes_on_from_there_under_other_settings(
    most: int, allowed: int, *, halved: bool
) -> None:
    limit = PushLimit(8)
    if halved:
        limit.halve(10, sent_at=9)
    limit.change(most, 10)

    assert limit.allowed(10) == allowed
