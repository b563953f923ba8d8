"""Which tests of tests/functional and tests/console can run against a deployment: a pytest plugin.

Those that know the service by what it answers.  Left out are those that hold its clock or reach
inside it: they name one of the words below, themselves or in a function or fixture of their module
that they use.  Of a test with several cases one is taken: that each of them holds is shown in
process, where it takes a hundredth of the time.  What is left out is counted as deselected.

Left out as well are the modules in RULES.  What can differ in a deployment is the template, what a
function may do, the wiring, events, API Gateway's own edge and the size of answers; every route and
every kind of request to a table is in the modules that stay.
"""

import inspect
import re
from collections.abc import Iterator
from types import FunctionType

import pytest

SERVED = {"call", "browse"}  # fixtures that stand for the service
INSIDE = re.compile(
    r"\b(clock|context|handler|patience|record\(|stream|using\(|faults?|MemoryStore|RESOLVER"
    r"|REQUEST_ID|PLAIN|X-Forwarded-Proto|admin_key|keyed\(None|capsys|caplog|stage|monkeypatch|START|NOW)\b"
    r"|2026-1|08:0\d"  # when the manual clock starts, and what it comes to
)
RULES = {
    "test_api_actions": "steps of an action; where it is deployed, the reaper takes them meanwhile",
    "test_api_bad_input": "a body is refused by its model, before any wiring",
    "test_api_dequeue_many": "shares among queues: arithmetic, and a dequeue of each",
    "test_api_filters": "rules of what fits, on the index that test_api_tasks lists by",
    "test_api_key_queues": "a name is compared with the patterns of a key",
    "test_api_key_units": "units are a sum, kept in the process",
    "test_api_repeats": "keys are compared; the answers are items that tests/contract asks for",
    "test_api_viewers": "what an answer leaves out, once it is there",
    "test_selections": "steps of a form, each a call that test_api_bulk makes",
}
"""Modules about rules that the code alone decides, the same wherever it runs, each with its reason.

They run in process in `make test`; what they ask of tables, `make test-dynamodb` asks too.
"""
WIRED = {
    "test_a_repeat_of_the_call_begins_nothing_more",
    "test_each_task_says_its_queue_and_is_reported_on_there",
    "test_a_list_and_a_count_mean_the_same_tasks",
    "test_notifications_are_a_queue_like_others",
    "test_only_the_own_queues_are_listed_and_pages_tell_nothing_of_others",
    "test_the_same_request_under_the_same_key_is_answered_as_before_and_does_nothing",
    "test_a_repeated_action_answers_what_the_first_one_did",
    "test_a_viewer_never_sees_payload_result_or_progress",
    "test_exactly_the_filtered_set_is_restarted_after_a_look",
}
"""Tests of these modules that do run there: one for each route, record or role of their own."""
BESIDE = {
    "test_a_name_in_the_path_is_the_same_however_it_is_encoded": "ministack decodes a path itself",
    "test_what_is_shown_can_be_sent_back": "expects two calls at one instant",
    "test_what_is_left_out_takes_its_default": "expects the instant of the manual clock",
    "test_many_threads_at_once_keep_their_requests_apart": "a function each, of two cores in all",
    "test_a_waiting_task_says_why_it_waits": "expects that no time passes",
    "test_a_part_of_a_page_is_that_part_of_the_page": "likewise",
    "test_a_part_that_is_named_a_thousand_times_is_drawn_once": "likewise",
    "test_250_ids_are_taken_at_once": "within 28 seconds, by two cores that others use too",
    "test_right_keys_are_never_slowed_down": "a count in the process",
    "test_the_short_way_answers_as_powertools_way_does": "compares two calls, whose ids differ",
    "test_every_answer_says_when_to_ask_again": "expects what a file says; a table says a second",
    "test_a_pattern_may_be_any_text_and_means_itself": "a key made for each of many texts",
    "test_errors_say_what_happened_and_the_request_id": "brings a request id of its own",
    # The recorder is a moment behind, and counts what is wiped too; test_deployed.py waits for it.
    "test_queues_are_told_at_a_glance": "expects counts at once",
    "test_a_batch_names_its_dead_and_what_it_called_back": "likewise",
    "test_flows_are_told_in_a_picture_and_in_a_table": "likewise",
    "test_the_charts_have_a_table_of_the_same_numbers": "likewise",
    "test_what_was_cancelled_is_drawn_beside_what_died": "likewise",
    # Each goes through all pages.
    "test_every_page_leads_somewhere_runs_nothing_of_its_own_and_names_its_fields": "minutes here",
    "test_no_role_is_shown_a_link_or_form_that_it_may_not_follow": "likewise",
}
"""Tests that cannot run there for a reason of their own."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what can run there."""
    left_out = [item for item in items if not _can_run(item)]
    taken: set[str] = set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if item not in left_out and name in taken and not _about_deploying(item):
            left_out.append(item)
        taken.add(name)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _about_deploying(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/e2e/")


def _can_run(item: pytest.Item) -> bool:
    if _about_deploying(item):
        return True
    if not isinstance(item, pytest.Function) or not SERVED & set(item.fixturenames):
        return False
    name = item.originalname
    if name in BESIDE or (item.path.stem in RULES and name not in WIRED):
        return False
    return not any(INSIDE.search(source) for source in _sources(item))


def _sources(item: pytest.Function) -> Iterator[str]:
    """Yield the source of a test and of what it uses of its own module."""
    seen: set[str] = set()
    waiting = [item.originalname, *item.fixturenames]
    while waiting:
        name = waiting.pop()
        used = getattr(item.module, name, None)
        if name in seen or not callable(used):
            continue
        used = inspect.unwrap(used)  # a fixture is a function too
        seen.add(name)
        if isinstance(used, FunctionType) and used.__module__ == item.module.__name__:
            yield inspect.getsource(used)
            waiting += used.__code__.co_names
