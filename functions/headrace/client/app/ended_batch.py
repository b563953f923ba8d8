"""The batch that enqueued a task, with its members and their results."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.client.app.outcomes import Reject
from headrace.client.calls.batches import batch_results, get_batch, member_id
from headrace.client.calls.tasks import get_task
from headrace.client.codec import Codec, JsonValue, remember_codec
from headrace.client.operations import Operation, whole
from headrace.domain.batch import RESULTS
from headrace.domain.errors import NotFound
from headrace.domain.task import State
from headrace.domain.workflow import STEP_TAG, root_id
from headrace.wire.batches import BatchResult, BatchResults
from headrace.wire.tasks import BatchEnd, Task

if TYPE_CHECKING:
    from headrace.client.app.clients import AppClients


class EndedBatch:
    """The batch that enqueued a task, in its state at that time.

    In a workflow in which more than three steps wait for one step, its numbers count relays;
    members() and results() are those of the steps.
    """

    def __init__(
        self, end: BatchEnd, clients: "AppClients | None", codec: Codec, *, workflow: str
    ) -> None:
        self._end, self._clients, self._codec, self._workflow = end, clients, codec, workflow
        self.id, self.total = end.id, end.total
        self.succeeded, self.dead, self.deleted = end.succeeded, end.dead, end.deleted

    def __repr__(self) -> str:
        """A short form for logs."""
        return f"<batch {self.id}: {self.succeeded} of {self.total} succeeded>"

    def members(self) -> Sequence[BatchResult]:
        """Return all members of the batch as they ended, dead members too.

        Raises RuntimeError if it cannot return all of them, as results() does.
        """
        return self._known().client.run(self._members())

    def results(self) -> list[JsonValue]:
        """Return the results of the members that succeeded, in the order they were enqueued.

        A batch of more than a hundred members takes a call for each member.
        Raises RuntimeError if a result is missing: a task is no longer kept, or there are more
        than a hundred tasks whose ids the program chose.
        """
        return self._known().client.run(self._results())

    async def amembers(self) -> Sequence[BatchResult]:
        """Do what members() does, from an event loop."""
        return await self._known().async_client.run(self._members())

    async def aresults(self) -> list[JsonValue]:
        """Do what results() does, from an event loop."""
        return await self._known().async_client.run(self._results())

    def results_of(self, arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the values of *arguments* that are results, by the names of their steps.

        Raises Reject for a step that has no result.
        """
        return self._known().client.run(self._results_of(arguments))

    async def aresults_of(self, arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Do what results_of() does, from an event loop."""
        return await self._known().async_client.run(self._results_of(arguments))

    def _known(self) -> "AppClients":
        if self._clients is None:
            raise RuntimeError("this attempt has no client to ask for the members of its batch")
        return self._clients

    def _members(self) -> Operation[list[BatchResult]]:
        """Return all members, in the order of a block that added them.

        Raises RuntimeError if they are more than the service lists, and have other ids than the
        SDK gives.
        """
        found: list[BatchResult] = []
        ids = [self.id]  # grows while it is read: with the batches that relays stand for
        self._listed = 0
        for id in ids:
            page: BatchResults = yield from whole(batch_results(id))
            members: Sequence[BatchResult] = page.results
            if page.truncated:
                members = yield from self._every_member(id, members)
            self._listed = self._listed or len(members)
            for one in members:
                if not one.stands_for:
                    found.append(one)
                elif one.stands_for not in ids:
                    ids.append(one.stands_for)
        places: dict[str, int] = {}
        for place in range(len(found)):
            places[member_id(self.id, place)] = places[root_id(self._workflow, place)] = place
        return sorted(found, key=lambda one: places.get(one.id, len(found)))

    def _every_member(self, id: str, first: Sequence[BatchResult]) -> Operation[list[BatchResult]]:
        """Return the members of a batch of which the service lists only the *first*."""
        total = self.total if id == self.id else (yield get_batch(id)).total or 0
        in_block = bool(first) and first[0].id in {member_id(id, n) for n in range(RESULTS)}
        found = []
        for place in range(total):
            name = member_id(id, place) if in_block else root_id(self._workflow, place)
            task: Task | None = None
            with suppress(NotFound):
                task = yield get_task(name, payload=False)
            if task is None or id not in task.batches:
                raise RuntimeError(
                    f"batch {id} has {total} members, and not all can be read: they were deleted or"
                    " are no longer kept, the key may not see their queue, or"
                    " the program chose their ids"
                )
            one = BatchResult(
                id=task.id, queue=task.queue, state=task.state, result_json=task.result_json
            )
            remember_codec(one, self._codec)
            found.append(one)
        return found

    def _results_of(self, arguments: Mapping[str, Any]) -> Operation[dict[str, JsonValue]]:
        """Return results by argument: of one step, of a list of steps, or None: of all members."""
        if all(steps is None for steps in arguments.values()):
            results = yield from self._results()
            return dict.fromkeys(arguments, results)
        members = yield from self._members()
        by_step: dict[str, BatchResult] = {}
        for one in members:
            if one.state is State.SUCCEEDED:
                task: Task = yield get_task(one.id, payload=False)
                by_step[task.tags.get(STEP_TAG, "")] = one

        def result(step: str) -> JsonValue:
            if step not in by_step:
                raise Reject(f"step {step} has no result: it is dead, or is no longer kept")
            return by_step[step].result

        return {
            name: [one.result for one in members]
            if steps is None
            else result(steps)
            if isinstance(steps, str)
            else [result(step) for step in steps]
            for name, steps in arguments.items()
        }

    def _results(self) -> Operation[list[JsonValue]]:
        """Return the results of succeeded members.  Raises RuntimeError if a result is missing."""
        members = yield from self._members()
        ended = self.succeeded + self.dead
        if ended + self.deleted == self.total and self._listed < ended:
            raise RuntimeError(
                f"{ended - self._listed} of the {ended} members of batch {self.id} cannot be read:"
                " they were deleted or are no longer kept, or the key may not see their queue"
            )
        return [member.result for member in members if member.state is State.SUCCEEDED]
