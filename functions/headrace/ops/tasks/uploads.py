"""Large texts of tasks in the object store: uploads by producers, and reads for answers.

Where objects are in S3, producers upload to S3.  Otherwise the service accepts uploads and serves
downloads itself, by URLs that it signs; see ``local.payloads``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

from msgspec import structs

from headrace.domain import limits, offload
from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.ids import new_request_token, new_task_id
from headrace.domain.offload import PATH, OwnObjects, Upload, text_of
from headrace.domain.plan import TaskSpec
from headrace.domain.task import OFFLOADED, OffloadedText, Task
from headrace.ops.shared.service_part import ServicePart

if TYPE_CHECKING:
    from headrace.runtime.service import Service

Origin = str | None
"""Where the service is, as ``http://host``; None for a program that has it in its own process."""

_FIELD: Final = "payload_ref"
_DIGITS: Final = 12  # of an instant in seconds


@dataclass(frozen=True, slots=True)
class UploadGrant:
    """An upload that may be made: where, and with which headers."""

    upload: Upload
    url: str
    headers: Mapping[str, str]


class Uploads(ServicePart):
    """Admits uploads of payloads, and signs their URLs.

    *on* is whether texts are offloaded.  *key* signs the service's own URLs.
    """

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.on: bool = service.settings.payload_offload_bytes > 0
        self.key: bytes = sha256(f"payloads {service.settings.admin_key}".encode()).digest()

    def grant(
        self, queue: str, *, size: int, digest: str, task_id: str | None, origin: Origin
    ) -> UploadGrant:
        """Grant the upload of *size* bytes with that sha256 for one task of *queue*.

        The task has *task_id*, or an id made here.
        Raises NotFound for the queue, and InvalidRequest where payloads cannot be uploaded.
        """
        target = self.service.queues.cached(queue)
        if self.service.objects is None or not self.on:
            message = (
                "payloads are not kept outside the table here, so none can be uploaded: "
                "set PayloadOffloadBytes, or HEADRACE_PAYLOAD_OFFLOAD_BYTES on one machine"
            )
            raise InvalidRequest(message)
        if target.settings.target is not None:
            message = f"queue {queue} pushes payloads to a target, and those are not uploaded"
            raise InvalidRequest(message)
        now = self.now()
        token = new_request_token() + new_request_token()
        made = offload.grant_upload(
            target.name,
            task_id=task_id or new_task_id(now),
            token=token,
            size=size,
            digest=digest,
            now=now,
        )
        door = self.service.objects.door()
        if door is not None:
            return UploadGrant(made, *door.upload_url(made, limits.UPLOAD_SECONDS))
        return UploadGrant(made, self._own_url("PUT", made.name, origin), _headers(made))

    def url_of(self, payload: OffloadedText, origin: Origin) -> str:
        """Return where a worker gets an uploaded *payload*, within an hour."""
        if self.service.objects is None:
            raise Unavailable("payloads are kept elsewhere, and nothing says where")
        door = self.service.objects.door()
        if door is not None:
            return door.download_url(payload.name, limits.UPLOAD_SECONDS)
        return self._own_url("GET", payload.name, origin)

    def faults(self, new: Iterable[TaskSpec], queue: str) -> dict[str, str]:
        """Return the reasons why uploads cannot be the payloads of *new* in *queue*, by name.

        Raises Unavailable when the object store does not answer.
        """
        wanted = {one.upload.name: one.upload for one in new if one.upload is not None}
        now = self.now()
        known = {name: one.fault(queue, now) for name, one in wanted.items()}
        faults = {name: f"{_FIELD} {fault}" for name, fault in known.items() if fault}
        rest = [name for name in wanted if name not in faults]
        if self.service.objects is None:
            return faults | dict.fromkeys(rest, f"{_FIELD} is of a service that keeps payloads")
        sizes = self.service.objects.sizes(rest) if rest else {}
        for name in rest:
            if name not in sizes:
                faults[name] = f"{_FIELD} was not uploaded, or is used up"
            elif sizes[name] != wanted[name].bytes:
                size = f"{sizes[name]} bytes, and not the {wanted[name].bytes} that were granted"
                faults[name] = f"{_FIELD} has {size}"
        return faults

    # -- the service's own URLs --------------------------------------------------------------------

    def _own_url(self, method: str, name: str, origin: Origin) -> str:
        if origin is None:
            path = self.own_objects.path_of(name)
            if path is None:
                message = "a payload is uploaded to a service or beside a file; here is only memory"
                raise InvalidRequest(message)
            return path.as_uri()
        until = int(self.now().timestamp()) + limits.UPLOAD_SECONDS
        signed = offload.signature(self.key, method, name, until)
        return f"{origin}{PATH}{quote(name)}?until={until}&signature={signed}"

    def own(self, method: str, name: str, query: Mapping[str, Sequence[str]]) -> Upload | None:
        """Return the upload that a URL of ours is for; None unless it allows *method* now."""
        until, signed = ("".join(query.get(part, ())) for part in ("until", "signature"))
        if not until.isascii() or not until.isdigit() or len(until) > _DIGITS:
            return None
        good = offload.signature(self.key, method, name, int(until))
        if not offload.signatures_match(good, signed) or int(until) <= self.now().timestamp():
            return None
        return offload.read(name)

    @property
    def own_objects(self) -> OwnObjects:
        """The objects that are reached by URLs of ours."""
        if self.service.objects is None or self.service.objects.door() is not None:
            raise Unavailable("payloads are not kept by this service")
        return cast("OwnObjects", self.service.objects)


def _headers(made: Upload) -> dict[str, str]:
    return {"Content-Length": str(made.bytes)}


class OffloadedTexts(ServicePart):
    """Reads texts of tasks from the object store."""

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
        return structs.replace(task, **texts) if texts else task
