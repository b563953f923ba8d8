"""Two apps and an operator share queues: whoever syncs changes what is its own and nothing else.

Calls get lost, with or without having taken effect, and the operator acts at any moment of a sync.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from headrace import App, Client
from headrace.client.app.declared import by_path, nested
from headrace.client.app.drift import (
    MARK,
    ScheduleName,
    SyncAction,
    SyncPlan,
    SyncStep,
)
from headrace.client.app.syncing import AppSync, StepOutcome, failure_of
from headrace.client.calls.queues import merged
from headrace.domain.errors import Unavailable
from headrace.testing import MemoryService
from headrace.wire.base import to_json
from headrace.wire.queues import Schedule

QUEUES: Final = ("mail", "news")
APPS: Final = ("shop", "books")
NAMES: Final = ("a", "b", "c")
CRONS: Final = ("0 7 * * *", "0 8 * * *")
OPERATORS_FIELDS: Final = ("description", "retry_strategy.base_seconds")
APPS_FIELDS: Final = ("shards", "retry_strategy.max_retries")

SETTINGS: Final = st.fixed_dictionaries(
    {},
    optional={
        "shards": st.integers(1, 3),
        "retry_strategy": st.fixed_dictionaries({"max_retries": st.integers(1, 3)}),
    },
)
DECLARED: Final = st.fixed_dictionaries(dict.fromkeys(QUEUES, SETTINGS))
SCHEDULES: Final = st.dictionaries(
    st.tuples(st.sampled_from(QUEUES), st.sampled_from(NAMES)), st.sampled_from(CRONS), max_size=4
)
PLACES: Final = st.none() | st.integers(0, 14)


def digest() -> None: ...


def program(name: str, queues: dict[str, Any], schedules: dict[ScheduleName, str]) -> App:
    app = App(name=name)
    for queue, declared in queues.items():
        app.queue(queue, **declared)
        task = app.task(queue=queue, name=f"digest.{queue}")(digest)
        for (of, schedule), cron in schedules.items():
            if of == queue:
                app.periodic(cron=cron, name=schedule)(task)
    return app


class Syncs(RuleBasedStateMachine):
    """Deploys of both apps, and what an operator does by hand."""

    sync_class: type[AppSync] = AppSync

    def __init__(self) -> None:
        super().__init__()
        self.service = MemoryService(seed=1)
        for queue in QUEUES:
            self.service.client.create_queue(queue)
        self.acts = 0

    def queues(self) -> dict[str, dict[str, Any]]:
        found = {}
        for queue in QUEUES:
            fields = by_path(json.loads(to_json(self.service.client.get_queue(queue))))
            found[queue] = {field: fields[field] for field in (*OPERATORS_FIELDS, *APPS_FIELDS)}
        return found

    def schedules(self) -> dict[ScheduleName, Schedule]:
        client = self.service.client
        return {
            (queue, short.name): client.get_schedule(queue, short.name)
            for queue in QUEUES
            for short in client.get_queue(queue).schedules or ()
        }

    @rule(queue=st.sampled_from(QUEUES), shards=st.none() | st.integers(1, 3))
    def edits(self, queue: str, shards: int | None = None) -> None:
        self.acts += 1
        more: Any = {} if shards is None else {"shards": shards}
        more |= {"retry_strategy": {"base_seconds": self.acts}}
        self.service.client.edit_queue(queue, description=f"by hand {self.acts}", **more)

    @rule(queue=st.sampled_from(QUEUES), name=st.sampled_from(NAMES), cron=st.sampled_from(CRONS))
    def puts_a_schedule(self, queue: str, name: str, cron: str) -> None:
        if (queue, name) not in self.schedules():
            self.service.client.put_schedule(queue, name, cron=cron)

    @rule(queue=st.sampled_from(QUEUES), name=st.sampled_from(NAMES), paused=st.booleans())
    def pauses_a_schedule(self, queue: str, name: str, *, paused: bool) -> None:
        found = self.schedules().get((queue, name))
        if found is not None:
            self.service.client.put_schedule(
                queue, name, cron=found.cron, payload=found.payload, tags=found.tags, paused=paused
            )

    @rule(
        name=st.sampled_from(APPS),
        queues=DECLARED,
        schedules=SCHEDULES,
        prune=st.booleans(),
        lost_at=PLACES,
        taken=st.booleans(),
        edited_at=PLACES,
        shards=st.none() | st.integers(1, 3),
    )
    def deploys(
        self,
        name: str,
        queues: dict[str, Any],
        schedules: dict[ScheduleName, str],
        *,
        prune: bool,
        lost_at: int | None,
        taken: bool,
        edited_at: int | None,
        shards: int | None,
    ) -> None:
        """A sync in which one call may get lost, and the operator may edit a queue."""
        before, kept = self.queues(), self.schedules()
        edits: list[str] = []

        def at(number: int, send: Callable[[], httpx.Response]) -> httpx.Response:
            if number == edited_at:
                self.edits("mail", shards)
                edits.append("mail")
            if number == lost_at:
                if taken:
                    send()
                raise httpx.ReadTimeout("lost")
            return send()

        app = program(name, queues, schedules)
        sync = self.sync_class(self.client(at), app.declares(), everywhere=True)
        plan, failed = None, True
        try:
            plan = sync.plan(prune=prune)
        except Unavailable:
            assert lost_at is not None
        else:
            results = list(sync.apply(plan.steps))
            failed = failure_of(results) is not None
            conflicts = [one for one in plan.steps if one.action is SyncAction.CONFLICT]
            assert not failed or conflicts or lost_at is not None or edits
            assert all(one.outcome is not StepOutcome.FAILED or one.error for one in results)
        self.check_queues(app, before, edited=bool(edits))
        self.check_schedules(app, kept, pruned=prune)
        if not failed and not edits:
            again = self.sync_class(self.client(), app.declares(), everywhere=True)
            assert again.plan(prune=prune).steps == ()

    def client(self, at: Any = lambda _number, send: send()) -> Client:
        counted = iter(range(10_000))

        def send(request: httpx.Request) -> httpx.Response:
            answer: httpx.Response = at(
                next(counted), lambda: self.service.transport.handle_request(request)
            )
            return answer

        transport = httpx.MockTransport(send)
        return Client(
            self.service.url, self.service.key, transport=transport, retries=0, sleep=lambda _: None
        )

    def check_queues(self, app: App, before: dict[str, Any], *, edited: bool) -> None:
        """Each field is as it was, as declared, or as the operator has just set it."""
        declared = app.declares().queues
        for queue, fields in self.queues().items():
            for field, value in fields.items():
                if edited and queue == "mail":
                    if field in OPERATORS_FIELDS:
                        assert str(self.acts) in str(value), field
                    continue
                allowed = [before[queue][field], declared[queue].get(field, before[queue][field])]
                assert value in allowed, field

    def check_schedules(
        self, app: App, before: dict[ScheduleName, Schedule], *, pruned: bool
    ) -> None:
        """Only declared ones are put, only one's own are removed, and pauses stay."""
        declares = app.declares()
        after = self.schedules()
        for key in after.keys() | before.keys():
            old, new = before.get(key), after.get(key)
            owner = None if old is None else old.tags.get(MARK)
            if new is None:
                assert pruned
                assert owner == app.name
                assert key not in declares.schedules
            elif old is None:
                assert key in declares.schedules
            else:
                assert new.paused == old.paused
                foreign = owner not in (None, app.name)
                if foreign or key not in declares.schedules:
                    assert new == old


FEW: Final = settings(
    stateful_step_count=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

PLANTED: Final = settings(
    FEW,
    max_examples=1_000,
    stateful_step_count=20,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@pytest.mark.parametrize("examples", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_any_syncs_and_edits_leave_what_they_should(examples: int) -> None:
    run_state_machine_as_test(Syncs, settings=settings(FEW, max_examples=examples))


# ---------------------------------------------------------------------------------- planted faults


class NoVersion(AppSync):
    """A change of a queue is sent without the version that it was planned for."""

    def _put_queue(self, step: SyncStep) -> None:
        fields = {change.field: change.new for change in step.fields}
        whole = merged(self._queues[step.queue], nested(fields))
        self._client.replace_queue({name: one for name, one in whole.items() if name != "version"})


class AllOfThem(AppSync):
    """Everything that is not declared is removed, whoever has made it."""

    def plan(self, *, prune: bool = False) -> SyncPlan:
        found = super().plan(prune=prune)
        if not prune:
            return found
        more = tuple(
            SyncStep(SyncAction.REMOVE, queue, short.name)
            for queue in QUEUES
            for short in self._client.get_queue(queue).schedules or ()
            if (queue, short.name) not in self._declares.schedules
        )
        return SyncPlan((*found.steps, *more))

    def _remove(self, key: ScheduleName, found: Schedule | None) -> None:
        if found is not None:
            self._client.delete_schedule(*key)


class WholeSettings(AppSync):
    """Settings that the app does not name take their defaults."""

    def _put_queue(self, step: SyncStep) -> None:
        declared = nested(self._declares.queues[step.queue])
        self._client.replace_queue({"name": step.queue, **declared})


class ForgetsPauses(AppSync):
    """A schedule that is put is not paused."""

    def _put_schedule(self, step: SyncStep, key: ScheduleName) -> None:
        super()._put_schedule(step, key)
        found = self._schedule(key)
        if found is not None and found.paused:
            self._client.put_schedule(
                *key, cron=found.cron, payload=found.payload, tags=found.tags, paused=False
            )


@pytest.mark.parametrize("syncs", [AppSync, ForgetsPauses])
def test_a_paused_schedule_stays_so_when_its_cron_changes(syncs: type[AppSync]) -> None:
    class Machine(Syncs):
        sync_class = syncs

    machine = Machine()

    def deploy(cron: str) -> None:
        machine.deploys(
            "shop", {queue: {} for queue in QUEUES}, {("mail", "a"): cron},
            prune=False, lost_at=None, taken=False, edited_at=None, shards=None,
        )  # fmt: skip

    deploy(CRONS[0])
    machine.pauses_a_schedule("mail", "a", paused=True)

    with nullcontext() if syncs is AppSync else pytest.raises(AssertionError):
        deploy(CRONS[1])


@pytest.mark.slow
@pytest.mark.parametrize("planted", [NoVersion, AllOfThem, WholeSettings])
def test_the_machine_catches_a_sync_that(planted: type[AppSync]) -> None:
    class Planted(Syncs):
        sync_class = planted

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Planted, settings=PLANTED)
