"""Texts of tasks that are kept elsewhere, fetched for whoever is shown or handed the tasks."""

from collections.abc import Iterable, Mapping, Sequence

from headrace.domain.copies import altered
from headrace.domain.errors import Unavailable
from headrace.domain.offload import text_of
from headrace.domain.task import OFFLOADED, Task
from headrace.ops.shared.service_part import ServicePart


class OffloadedTexts(ServicePart):
    """The use case; *objects* is None where nothing is kept elsewhere."""

    def filled(self, tasks: Sequence[Task], names: Iterable[str] = tuple(OFFLOADED)) -> list[Task]:
        """Return *tasks* with these texts, all fetched at once; what is lost stays None.

        Raises Unavailable when they cannot be fetched now.
        """
        fields = frozenset(names)
        wanted = {
            one.name
            for task in tasks
            for field, one in task.fetchable.items()
            if field in fields and getattr(task, field) is None
        }
        if not wanted:
            return list(tasks)
        if self.service.objects is None:
            raise Unavailable("payloads are kept elsewhere, and nothing says where")
        found = self.service.objects.get(wanted)
        return [self._with(task, found, fields) for task in tasks]

    def shown(self, task: Task, *, payload: bool = True) -> Task:
        """Return *task* with all its texts, or without its payload.

        Raises Unavailable also for one whose text is gone: it may just have ended.
        """
        names = [name for name in OFFLOADED if payload or name != "payload"]
        filled = self.filled([task], names)[0]
        lost = [name for name in self.lost(filled) if name in names]
        if lost:
            message = f"the {lost[0]} of task {task.id} is not where it was kept; ask again"
            raise Unavailable(message)
        return filled

    @staticmethod
    def lost(task: Task) -> list[str]:
        """Return the fields of a filled *task* whose text is not there, or not what it was."""
        return [name for name in task.fetchable if getattr(task, name) is None]

    @staticmethod
    def _with(task: Task, found: Mapping[str, bytes], fields: frozenset[str]) -> Task:
        texts = {
            field: text_of(found[one.name], one)
            for field, one in task.fetchable.items()
            if field in fields and one.name in found
        }
        return altered(task, **texts) if texts else task
