"""What producers, workers and operators do, by the calls of the HTTP API."""

import random
from collections.abc import Callable
from typing import Any

from tests.simulation.facts import Batch, Dequeued, Enqueued, Facts, Purge
from tests.simulation.scenario import ENDS, OTHER_SETTINGS, Actor, Op, Scenario
from tests.simulation.world import Lost, Refused, World

GROUPS = ("a", "b", "c", None)
STATES = ("ENQUEUED", "INFLIGHT", "SUCCEEDED", "DEAD")
EVENTS = ("ended", "succeeded", "failed")
GONE = (404, 409)
_TRIES = 6


class Caller:
    """One actor at work."""

    def __init__(self, world: World, scenario: Scenario, facts: Facts, actor: Actor) -> None:
        self.world, self.scenario, self.facts, self.actor = world, scenario, facts, actor
        self.queues = [name for name in scenario.queues if name != ENDS]
        self.held: list[tuple[dict[str, Any], str]] = []
        self.chance = random.Random(0)
        self.number = 0

    def run(self) -> None:
        for op in self.actor.ops:
            self.world.stage.sleep(op.pause)
            self.do(op)

    def do(self, op: Op) -> None:
        self.chance = random.Random(op.draw)
        act: Callable[[], None] = getattr(self, op.name)
        try:
            act()
        except Lost:
            pass  # the actor has given up on it
        except Refused as refused:
            self.world.say(f"  refused: {refused}")
            if refused.status not in GONE:
                raise AssertionError(f"{op.name}: {refused}") from refused

    # -- calls -------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """Make a call, and repeat it while it has no answer.  Raises Lost and Refused."""
        self.number += 1
        key = f"{self.actor.name}-{self.number}" if method == "POST" else None
        shown = "" if body is None else f" {body}"
        for again in range(_TRIES):
            self.world.say(f"{method} {path}{shown}{' again' if again else ''}")
            try:
                answer = self.world.call(
                    method, path, body, query=query, repeat_key=key, attempt=again + 1
                )
            except Lost:
                self.world.say("  no answer")
                self.world.stage.sleep(self.chance.choice((0.1, 1.0, 3.0, 15.0)))
                if self.chance.random() < 0.1:
                    break
                continue
            if key is not None and self.chance.random() < 0.1:
                self._repeat(path, body, key, answer)
            return answer
        raise Lost

    def _repeat(self, path: str, body: Any, key: str, answer: dict[str, Any]) -> None:
        """Send an answered request again: it has the same answer, and nothing is done twice."""
        if path.endswith("/dequeue") and not answer["tasks"]:
            return  # that may lease tasks, which nobody would work on
        self.world.say("  and once more, though it was answered")
        try:
            again = self.world.call("POST", path, body, repeat_key=key, attempt=2)
        except (Lost, Refused):
            return
        if path.endswith("/tasks"):
            ids = [one["id"] for one in answer["results"]]
            assert [one["id"] for one in again["results"]] == ids, f"{ids} became {again}"
        if path.endswith("/dequeue") and "lease_id" not in body:
            first = {task["id"]: task["lease"]["id"] for task in answer["tasks"]}
            more = {task["id"]: task["lease"]["id"] for task in again["tasks"]}
            assert not first or more.items() <= first.items(), f"{first} became {more}"

    def queue(self) -> str:
        return self.chance.choice(self.queues)

    def path(self, queue: str) -> str:
        return f"/v1/queues/{queue}"

    # -- producers ---------------------------------------------------------------------------------

    def entry(self, queue: str, **more: Any) -> dict[str, Any]:
        kind = self.scenario.kind(queue)
        entry: dict[str, Any] = {"payload": {"n": self.chance.getrandbits(16)}}
        if kind == "priority":
            entry["priority"] = self.chance.choice(("high", "normal", "low"))
        if kind.startswith(("fair", "strict")):
            groups = GROUPS[:-1] if kind.startswith("strict") else GROUPS
            entry["group_key"] = self.chance.choice(groups)
        if self.chance.random() < 0.2:
            entry["tags"] = {"tenant": self.chance.choice("xy")}
        return {**entry, **more}

    def put(self, queue: str, entries: list[dict[str, Any]]) -> list[str]:
        """Enqueue, and note what was acknowledged."""
        began = self.world.stage.passed
        answer = self.call("POST", f"{self.path(queue)}/tasks", {"tasks": entries})
        results = answer["results"]
        assert len(results) == len(entries)
        made = [
            (one["id"], entry)
            for one, entry in zip(results, entries, strict=True)
            if one["outcome"] == "CREATED"
        ]
        for one in results:
            wrong = one["outcome"] == "INVALID"
            assert not wrong or str(one["detail"]).startswith(("batch", "priority")), one
        self.world.say(f"  {[(one['outcome'], one['id']) for one in results]}")
        self.facts.enqueued.append(
            Enqueued(
                queue,
                began,
                self.world.stage.passed,
                [id_ for id_, _ in made],
                [entry.get("group_key") for _, entry in made],
            )
        )
        return [id_ for id_, _ in made]

    def enqueue(self) -> None:
        queue = self.queue()
        self.put(queue, [self.entry(queue) for _ in range(self.chance.randint(1, 6))])

    def flood(self) -> None:
        """Many tasks of one group, then one of another."""
        queue = self.queue()
        if not self.scenario.kind(queue).startswith("fair"):
            return self.enqueue()
        for _ in range(2):
            self.put(queue, [self.entry(queue, group_key="a") for _ in range(20)])
        self.put(queue, [self.entry(queue, group_key="c")])
        return None

    def enqueue_own(self) -> None:
        """Ids of the producer's own, which others may use too."""
        queue = self.queue()
        self.put(
            queue, [self.entry(queue, id=f"own-{self.chance.randint(0, 9)}-{n}") for n in range(3)]
        )

    def delayed(self) -> None:
        queue = self.queue()
        if self.scenario.kind(queue).startswith("strict"):
            return self.enqueue()
        seconds = self.chance.choice((0.5, 5, 20))
        self.put(queue, [self.entry(queue, delay_in_seconds=seconds)])
        return None

    def dedupe(self) -> None:
        """Enqueue twice under one key, as whoever repeats itself does."""
        queue, key = self.queue(), f"key-{self.chance.randint(0, 1)}"
        for _ in range(2):
            more: dict[str, Any] = {"dedupe_key": key}
            if self.chance.random() < 0.3:
                more["dedupe_until"] = "start"
            elif self.chance.random() < 0.5:
                more["overwrite_on_duplicate"] = ["payload", "tags"]
            self.put(queue, [self.entry(queue, **more)])

    def unique(self) -> None:
        queue = self.queue()
        more = {"dedupe_key": f"unique-{self.chance.randint(0, 1)}", "unique_for_seconds": 60}
        self.put(queue, [self.entry(queue, **more)])

    def batch(self) -> None:
        """Make a batch, enqueue its members in some calls, and close it."""
        queue = self.queue()
        batch = Batch(f"batch-{self.actor.name}-{self.chance.getrandbits(24)}", queue, told=True)
        on = {
            event: {"queue": ENDS, "payload": event} for event in ("ended", "succeeded", "failed")
        }
        open_ = self.chance.random() < 0.5
        number = self.chance.randint(0, 4)
        self.facts.batches[batch.id] = batch
        batch.sure = False
        body = {"id": batch.id, "on": on, "total": None if open_ else number}
        self.call("POST", "/v1/batches", body)
        for _ in range(number):
            made = self.put(queue, [self.entry(queue, batches=[batch.id])])
            if not made:
                return
            batch.members += made
            self.world.stage.sleep(self.chance.uniform(0, 2))
        if open_:
            self.call("POST", f"/v1/batches/{batch.id}/close", {"total": number})
        batch.sure = batch.closed = True

    def schedule(self) -> None:
        queue = self.queue()
        if self.scenario.kind(queue).startswith("strict"):
            return
        name = f"tick-{self.chance.randint(0, 1)}"
        body: dict[str, Any] = {
            "every_seconds": self.chance.choice((10, 30)),
            "missed": self.chance.choice(("skip", "latest", "all")),
        }
        if self.chance.random() < 0.2:
            body["dedupe_key"] = "tick"
        if self.chance.random() < 0.2:
            body |= {"expires_in_seconds": 10, "on_expiry": self.chance.choice(("dead", "drop"))}
        self.facts.schedules.pop((queue, name), None)
        self.facts.puts[queue, name] += 1
        self.call("PUT", f"{self.path(queue)}/schedules/{name}", body)
        self.facts.schedules[queue, name] = {**body, "since": self.world.stage.passed}

    def unschedule(self) -> None:
        for queue, name in sorted(self.facts.schedules):
            self.facts.schedules.pop((queue, name), None)
            self.call("DELETE", f"{self.path(queue)}/schedules/{name}")
            return

    def run_schedule(self) -> None:
        for queue, name in sorted(self.facts.schedules):
            self.call("POST", f"{self.path(queue)}/schedules/{name}/run")
            return

    # -- workers -----------------------------------------------------------------------------------

    def work(self) -> None:
        """Take some tasks, work for a while, and report."""
        body = {
            "batch_size": self.chance.choice((1, 1, 2, 5)),
            "worker": self.actor.name,
            "wait_seconds": self.chance.choice((0, 0, 2)),
        }
        self._handle(self._leased(f"{self.path(self.queue())}/dequeue", body))

    def work_many(self) -> None:
        body = {
            "queues": self.queues,
            "batch_size": 3,
            "worker": self.actor.name,
            "order": self.chance.choice(("preference", "due")),
        }
        self._handle(self._leased("/v1/dequeue", body))

    def _leased(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        call = Dequeued(self.actor.name, self.world.stage.passed)
        self.facts.dequeued.append(call)
        tasks: list[dict[str, Any]] = self.call("POST", path, body)["tasks"]
        call.ids, call.ended = frozenset(task["id"] for task in tasks), self.world.stage.passed
        for task in tasks:
            self.facts.delivered.append((task["id"], task["lease"]["id"], self.world.stage.passed))
        if tasks:
            self.world.say(f"  has {[task['id'] for task in tasks]}")
        return tasks

    def _handle(self, tasks: list[dict[str, Any]], *, lease: str | None = None) -> None:
        for task in tasks:
            self.world.stage.sleep(self.chance.choice((0, 0.2, 1, 4)))
            if self.chance.random() < 0.15:
                self._report(task, "INFLIGHT", lease, progress="half")
                self.world.stage.sleep(self.chance.choice((1, 6, 12)))
            draw = self.chance.random()
            if draw < 0.06:
                self.world.say(f"  forgets {task['id']}")
            elif draw < 0.55:
                spawn = (
                    []
                    if self.chance.random() < 0.8
                    else [
                        {"queue": ENDS, "payload": {"from": task["id"]}}
                        for _ in range(self.chance.choice((1, 2, 3, 30)))
                    ]
                )
                self._report(task, "SUCCEEDED", lease, result={"ok": True}, spawn=spawn)
            elif draw < 0.72:
                error = {"type": "Error", "message": "no", "detail": ""}
                self._report(
                    task, "FAILED", lease, error=error, retryable=self.chance.random() < 0.8
                )
            elif draw < 0.8:
                self._report(task, "RELEASED", lease, delay_in_seconds=self.chance.choice((0, 3)))
            elif draw < 0.86:
                self._report(task, "MOVED", lease, to_queue=ENDS)
            elif draw < 0.93:
                self.world.stage.sleep(self.chance.choice((9, 11, 30)))  # its lease may lapse
                self._report(task, "SUCCEEDED", lease)
            else:
                self._report(task, "SUCCEEDED", lease)
                self._report(task, "SUCCEEDED", lease)

    def _report(self, task: dict[str, Any], status: str, lease: str | None, **fields: Any) -> str:
        report = {
            "task_id": task["id"],
            "lease_id": lease or task["lease"]["id"],
            "status": status,
            **{name: value for name, value in fields.items() if value},
        }
        path = f"{self.path(task['queue'])}/reports"
        (result,) = self.call("POST", path, {"reports": [report]})["results"]
        self.world.say(f"  {result['outcome']} {result['state']} {result['detail'] or ''}")
        assert result["outcome"] != "INVALID", result
        if result["outcome"] == "OK" and status != "INFLIGHT":
            self.facts.settled.append((task["id"], task["lease"]["id"], status))
            self.facts.spawned += [child["id"] for child in result["spawned"]]
        return str(result["outcome"])

    def work_group(self) -> None:
        """Work under a lease group: extend it, and close it at the end or let it lapse."""
        queue = self.queue()
        opened = self.call("POST", "/v1/leases", {"keepalive_timeout_in_seconds": 12})
        lease = opened["lease"]["id"]
        tasks = self._leased(
            f"{self.path(queue)}/dequeue",
            {"batch_size": 4, "worker": self.actor.name, "lease_id": lease},
        )
        self.world.stage.sleep(self.chance.choice((0, 5, 20)))
        if self.chance.random() < 0.5:
            self.call("POST", f"/v1/leases/{lease}/extend")
        self._handle(tasks[: self.chance.randint(0, len(tasks))], lease=lease)
        if self.chance.random() < 0.6:
            self.call("DELETE", f"/v1/leases/{lease}")

    def dawdle(self) -> None:
        self.world.stage.sleep(self.chance.choice((5, 15, 40)))

    # -- operators ---------------------------------------------------------------------------------

    def _some_id(self) -> str | None:
        ids = [id_ for call in self.facts.enqueued for id_ in call.ids]
        return self.chance.choice(ids) if ids else None

    def _where(self, queue: str, **states: Any) -> dict[str, Any]:
        ids = [id_ for call in self.facts.enqueued if call.queue == queue for id_ in call.ids]
        if ids and self.chance.random() < 0.5:
            return {"ids": sorted(set(self.chance.sample(ids, min(3, len(ids)))))}
        return {"filter": {k: v for k, v in states.items() if v}}

    def _bulk(self, action: str, queue: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.call("POST", f"{self.path(queue)}/tasks/{action}", body)
        self.world.say(f"  {answer['changed']} of {answer['matched']}")
        return answer

    def restart(self) -> None:
        queue = self.queue()
        self._bulk("restart", queue, self._where(queue, state=self.chance.choice(("DEAD", None))))

    def delete(self) -> None:
        """Delete with an undo, and most times undo it a while later."""
        queue = self.queue()
        states = self.chance.choice((*STATES, None, None))
        body = {**self._where(queue, state=states), "undo_in_seconds": 3600}
        undo = self._bulk("delete", queue, body).get("undo")
        if undo is not None:
            self.facts.undos.append(undo["id"])
            if self.chance.random() < 0.7:
                self.world.stage.sleep(self.chance.choice((0, 1, 15)))
                self.undo()

    def delete_task(self) -> None:
        if (task := self._some_id()) is not None:
            self.call("DELETE", f"/v1/tasks/{task}")

    def undo(self) -> None:
        if self.facts.undos:
            undo = self.chance.choice(self.facts.undos)
            answer = self.call("POST", f"/v1/undos/{undo}")
            self.world.say(f"  {answer['changed']} of {answer['matched']}")

    def move(self) -> None:
        queue = self.queue()
        to = self.chance.choice([*self.queues, ENDS])
        if to != queue:
            self._bulk("move", queue, {**self._where(queue, state="DEAD"), "to_queue": to})

    def run_now(self) -> None:
        queue = self.queue()
        self._bulk("run", queue, self._where(queue))

    def cancel(self) -> None:
        if (task := self._some_id()) is not None:
            state = self.call("POST", f"/v1/tasks/{task}/cancel")["state"]
            assert state in ("DEAD", None), f"{task} was cancelled, and is {state}"

    def purge(self) -> None:
        queue = self.queue()
        states = self.chance.sample(STATES, self.chance.randint(1, 4))
        purge = Purge(queue, self.world.stage.passed, tuple(states))
        self.facts.purges.append(purge)
        try:
            self.call("POST", f"{self.path(queue)}/purge", {"states": states})
            purge.answered = True
        finally:
            purge.ended = self.world.stage.passed  # a repeat may have begun it later

    def pause(self) -> None:
        queue = self.queue()
        self.call("POST", f"{self.path(queue)}/pause", {})
        paused = self.world.stage.passed
        self.world.stage.sleep(self.chance.choice((3, 20)))
        resumed = self.world.stage.passed
        self.facts.pauses.append((queue, paused, resumed))
        self.call("POST", f"{self.path(queue)}/resume")

    def settings(self) -> None:
        """Change a setting for a while, and keep the others."""
        queue = self.queue()
        other = OTHER_SETTINGS.get(self.scenario.kind(queue))
        for changed in (other, None) * 3 if other else (None,):
            if changed is not None:
                self.facts.changed.add(queue)
            shown = self.call("GET", self.path(queue))
            put = {**self.scenario.queues[queue], "keepalive_timeout_in_seconds": 11}
            self.call("PUT", self.path(queue), {**shown, **put, **(changed or {})})
            self.world.stage.sleep(self.chance.choice((0.3, 2, 12)))

    def action(self) -> None:
        queue = self.queue()
        kind = self.chance.choice(("restart", "delete", "run", "cancel", "move"))
        body: dict[str, Any] = {"action": kind, "queues": [queue], "filter": {}}
        if kind == "move":
            body["to_queue"] = ENDS
        if kind == "delete":
            body |= {"undo_in_seconds": 3600, "filter": {"state": "DEAD"}}
        run = self.call("POST", "/v1/actions", body)
        self.facts.actions.append(run["id"])

    def recount(self) -> None:
        queue, cursor = self.queue(), None
        self.facts.inexact.append(queue)
        for _ in range(20):
            answer = self.call("POST", f"{self.path(queue)}/recount", {"cursor": cursor})
            cursor = answer["cursor"]
            if cursor is None:
                if answer["exact"]:
                    self.facts.inexact.remove(queue)
                return

    def recount_batch(self) -> None:
        for batch in sorted(self.facts.batches):
            if self.facts.batches[batch].closed:
                self.call("POST", f"/v1/batches/{batch}/recount", {"cursor": None})
                return

    def look(self) -> None:
        """Read what operators read: it must answer, whatever happens meanwhile."""
        queue = self.queue()
        self.call("GET", f"{self.path(queue)}/tasks", limit=3)
        self.call("GET", f"{self.path(queue)}/count")
        self.call("GET", f"{self.path(queue)}/stats")
        if (task := self._some_id()) is not None:
            self.call("GET", f"/v1/tasks/{task}/explain")

    def delete_queue(self) -> None:
        """Delete a queue and make it again."""
        queue = self.queue()
        if self.chance.random() < 0.7:
            return self.look()
        self.facts.purges.append(Purge(queue, self.world.stage.passed, STATES))
        for name in [one for one in self.facts.schedules if one[0] == queue]:
            self.facts.schedules.pop(name)
        self.facts.deleted.add(queue)
        self.call("DELETE", self.path(queue))
        for _ in range(20):
            try:
                self.call("POST", "/v1/queues", {"name": queue, **self.scenario.queues[queue]})
            except Refused:
                self.world.stage.sleep(30)  # until the deletion has finished
            else:
                return None
        return None
