"""Any graph of steps runs to its end: each once, after all it waits for, with their results.

The graphs are random, the steps take random times and fail at times, and between worker and
service requests and answers are lost, deliveries come twice and leases lapse.
"""

import os
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import App, Context, Workflow
from headrace.client.codec import JsonValue
from headrace.client.workflow_graph import WorkflowGraph
from headrace.domain import limits
from headrace.domain.task import State
from headrace.domain.workflow import STEP_TAG, is_relay
from tests.faults import FaultyService

Graph = list[frozenset[int]]
"""For each step the steps before it that it waits for."""


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> Graph:
    return [
        draw(st.frozensets(st.integers(0, place - 1), max_size=place)) if place else frozenset()
        for place in range(draw(st.integers(1, most)))
    ]


def name(step: int) -> str:
    return f"s{step}"


class Story:
    """A graph that is run in a service of its own."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.graph = graph
        self.chance = random.Random(seed)
        self.done: set[int] = set()
        self.wrong: list[str] = []
        self.ran = 0
        self.app = App(queue="work")

        @self.app.task(max_retries=100, name="step")
        def step(ctx: Context, place: int) -> int:
            self.look(place, ctx.batch.results() if self.graph[place] else [])
            if self.chance.random() < 0.2:
                raise ConnectionError("on the way")
            self.done.add(place)
            return place

        self.task = step

    def look(self, place: int, results: list[JsonValue]) -> None:
        """Note what is wrong; what is raised in a step is tried again."""
        self.ran += 1
        if not self.graph[place] <= self.done:
            self.wrong.append(f"{place} was made before its turn")
        if Counter(results) != Counter(self.graph[place]):
            self.wrong.append(f"{place} was handed {results}")

    def run(self, *, times: int, on_failure: str) -> None:
        wf = Workflow(on_failure=on_failure)  # type: ignore[arg-type]  # one of two words
        for place, after in enumerate(self.graph):
            call = self.task.options(delay=self.chance.choice([0, 0, 1, 30])).s(place)
            wf.add(name(place), call, after=map(name, sorted(after)))
        with FaultyService(seed=self.chance.randrange(1000)) as service, service.serving(self.app):
            self.app.ensure_queues()
            faults = service.faults
            with (
                faults.lose_answers(rate=0.05),
                faults.lose_requests(rate=0.05),
                faults.duplicate_delivery(rate=0.1),
                faults.lapse_leases(rate=0.1),
            ):
                for _ in range(times):
                    wf.start(self.app.client, id="w")
                    service.run(self.app, until_settled=True)
            service.forward(300)
            service.run(self.app, until_settled=True)
            tasks = list(self.app.client.list_tasks("work"))
            whole = self.app.client.get_batch("w")
        assert not self.wrong
        steps = Counter(task.tags.get(STEP_TAG) for task in tasks)
        assert steps - Counter({None: steps[None]}) == Counter(map(name, range(len(self.graph))))
        assert {task.state for task in tasks} == {State.SUCCEEDED}
        assert (whole.total, whole.succeeded) == (len(self.graph), len(self.graph))
        assert whole.finished_at is not None


@pytest.mark.parametrize("examples", [4, pytest.param(34, marks=pytest.mark.slow)])
def test_any_graph_runs_each_step_once_and_in_its_turn(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(graphs(), st.integers(0, 10_000), st.integers(1, 2), st.sampled_from(["stop", "go_on"]))
    def run(graph: Graph, seed: int, times: int, on_failure: str) -> None:
        Story(graph, seed).run(times=times, on_failure=on_failure)

    run()


STEPS = int(os.environ.get("HEADRACE_WORKFLOW_STEPS", "500"))


@pytest.mark.slow
def test_steps_of_large_graphs_run_once_and_in_their_turn() -> None:
    """Forty steps in a graph, until HEADRACE_WORKFLOW_STEPS of them have been run."""
    ran, number = 0, 0
    while ran < STEPS:
        chance = random.Random(number)
        graph: Graph = [
            frozenset(chance.sample(range(place), min(place, chance.choice([0, 1, 1, 2, 3, 9]))))
            for place in range(40)
        ]
        story = Story(graph, number)
        story.run(times=1, on_failure=chance.choice(["stop", "go_on"]))
        ran, number = ran + story.ran, number + 1


@pytest.mark.parametrize("examples", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_relays_keep_all_within_their_batches_and_hand_all_on(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(graphs(40), st.integers(1, limits.TASK_BATCHES - 1))
    def run(graph: Graph, room: int) -> None:
        relays_keep_all_within_their_batches(graph, room)

    run()


def relays_keep_all_within_their_batches(graph: Graph, room: int) -> None:
    after = {name(place): [name(one) for one in sorted(ones)] for place, ones in enumerate(graph)}
    built = WorkflowGraph.of(after, dict.fromkeys(after, room))

    def behind(node: str) -> set[str]:
        names = built.joins.get(node, [])
        return {one for it in names for one in (behind(it) if is_relay(it) else {it})}

    for node, fed in built.feeds.items():
        assert len(fed) <= (limits.TASK_BATCHES if is_relay(node) else room)
        assert all(node in built.joins[one] for one in fed)
    for node, names in built.joins.items():
        assert len(set(names)) == len(names) > 0
        assert all(node in built.feeds[one] for one in names)
        assert not is_relay(node) or built.feeds[node]
    for step, names in after.items():
        assert behind(step) == set(names)
    order = built.last_first()
    assert sorted(order) == sorted(built.joins)
    assert all(
        order.index(one) < order.index(node) for node in order for one in built.feeds.get(node, ())
    )
    again = WorkflowGraph.of(after, dict.fromkeys(after, room))
    assert (again.joins, again.feeds) == (built.joins, built.feeds)
