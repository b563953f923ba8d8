"""One call of the API as a value: its request, how its answer is read, and its cost.

Both clients send the same calls; each endpoint is described once, in the modules beside this.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache, wraps
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from headrace.client.codec import Codec, decoded, remember_codec
from headrace.client.options import check_options, option_names
from headrace.domain.errors import FieldError, HeadraceError, InvalidRequest
from headrace.domain.ids import new_idempotency_key
from headrace.domain.limits import HALF_A_PAIR
from headrace.domain.values import decoder
from headrace.wire.base import Carrying

T = TypeVar("T")

KEY_HEADER: Final = "idempotency-key"
ATTEMPT_HEADER: Final = "x-attempt"
UNITS_HEADER: Final = "X-Consumed-Units"
POLL_HEADER: Final = "X-Poll-After"
_UNITS: Final = re.compile(r"w=([0-9.]+), r=([0-9.]+)")
_ACCEPTED: Final = 202
_PLAIN_NAME: Final = re.compile(r"[\w~-][\w.~-]*", re.ASCII)
"""A name that needs no quoting in a path."""
_encode: Final = msgspec.json.Encoder().encode


class CallFailed(Exception):
    """A try that failed and may be repeated; ``error`` is what is raised in the end."""

    def __init__(self, error: HeadraceError, *, wait: float | None = None) -> None:
        super().__init__(error.detail)
        self.error = error
        self.wait = wait  # seconds, where the service names them


class RawAnswer(Struct, frozen=True):
    """A response, before it is decoded.

    ``poll_after_seconds`` is after how long to ask again for what is still to come;
    ``over_network`` is false for a service within this process.
    """

    status: int
    body: bytes
    codec: Codec
    poll_after_seconds: float = 1.0
    over_network: bool = False

    @property
    def in_background(self) -> bool:
        """Whether the operation continues after the answer."""
        return self.status == _ACCEPTED


Body: TypeAlias = Callable[[Codec], bytes]
Read: TypeAlias = Callable[[RawAnswer], T]


class ApiCall(Struct, Generic[T], frozen=True):
    """One request and how its answer is read.

    A ``repeatable`` call is sent again if its answer was lost.  ``key`` is the idempotency key of
    all tries.  ``attempt`` is the number of the first try, if the service counts them.
    ``wait_seconds`` is how long the service may wait before it answers.
    """

    method: str
    path: str
    read: Read[T]
    params: Mapping[str, str] | None = None
    body: Body | None = None
    repeatable: bool = True
    key: str | None = None
    attempt: int | None = None
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """Some entries of a list, and the cursor of the next page."""

    entries: list[T]
    cursor: str | None


class CallStep(Protocol):
    """An answer with the ``cursor`` of the next call; None for the last answer."""

    @property
    def cursor(self) -> str | None:
        """The cursor of the next call."""


S = TypeVar("S", bound=CallStep)


@dataclass(frozen=True, slots=True)
class CallChain(Generic[S]):
    """Successive calls, each with the cursor of the answer before; the first has None."""

    at: Callable[[str | None], ApiCall[S]]


PagedCall: TypeAlias = CallChain[ListPage[T]]
"""A list as the calls for its pages."""


@dataclass(frozen=True, slots=True)
class SteppedCall(CallChain[S]):
    """An operation that may take several calls, and the total of their answers."""

    total: Callable[[Sequence[S]], S]


def method_of(
    make: Callable[..., Any],
    take: Literal["send", "run", "stream"],
    operation_of: Callable[[Any], Any] | None = None,
) -> Any:  # noqa: ANN401  a method of either client
    """Return a method of a client that makes a call, or an operation of it, and takes that.

    The method raises TypeError with the nearest right name for an unknown argument.
    """
    known = option_names(make)

    @wraps(make)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  either client
        if not kwargs.keys() <= known:
            check_options(make, kwargs)
        made = make(*args, **kwargs)
        return getattr(self, take)(made if operation_of is None else operation_of(made))

    return method


def path_of(*parts: str) -> str:
    """The path of *parts* under ``/v1``, names percent-encoded.

    Raises InvalidRequest for a name that would make it the path of something else, or is no text.
    """
    return "/v1/" + "/".join([_in_path(part) for part in parts])


def _in_path(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):  # as most are
        return name
    if name in ("", ".", ".."):
        message = f"cannot be {name!r}"
        raise InvalidRequest(f"a name {message}", errors=[FieldError("name", message)])
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise no_text("name", error) from None


def params_of(**given: object) -> dict[str, str]:
    """Return the parameters of a query that are not None.

    Raises InvalidRequest naming an instant that has no time zone.
    """
    words = {name.removesuffix("_"): value for name, value in without_none(**given).items()}
    return {name: _parameter(name, value) for name, value in words.items()}


def _parameter(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return instant_text(value, field=name)
    return str(value)


def instant_text(at: datetime, *, field: str) -> str:
    """*at* as the API writes instants.

    Raises InvalidRequest naming *field* for one without a time zone.
    """
    if at.utcoffset() is None:
        when = at.replace(tzinfo=None).isoformat()
        message = f"needs a time zone, as datetime(…, tzinfo=UTC) has, and {when} has none"
        raise InvalidRequest.of(field, message)
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@cache
def _decoder_of(shape: type[Any]) -> msgspec.json.Decoder[Any]:
    """The decoder for JSON of *shape*, made once."""
    return decoder(shape)


def reads(shape: type[T]) -> Read[T]:
    """Return the reader of answers of *shape*; the codec decodes payloads and results."""
    decoder = _decoder_of(shape)  # type: ignore[arg-type]  # a type is hashable

    def read(answer: RawAnswer) -> T:
        try:
            found: T = decoder.decode(answer.body)
        except msgspec.DecodeError:
            found = decoded(decoder, answer.body)
        for one in getattr(found, "tasks", (found,)):
            if isinstance(one, Carrying):
                remember_codec(one, answer.codec)
            if answer.over_network:
                _check_no_file(one)
        return found

    return read


def _check_no_file(found: object) -> None:
    """Raise HeadraceError if a service on the network names a file of this machine.

    Only a service within this process may: else a service could read and write any file here.
    """
    for name in ("payload_url", "url"):
        url = getattr(found, name, None)
        if isinstance(url, str) and url.lstrip().lower().startswith("file:"):
            message = f"the service named a file of this machine as {name}, which is refused: {url}"
            raise HeadraceError(message)


def lists(
    path: str,
    shape: type[S],
    entries: Callable[[S], list[T]],
    params: Mapping[str, str],
) -> PagedCall[T]:
    """Return a list whose pages are answers of *shape* with *entries*."""

    def read(answer: RawAnswer) -> ListPage[T]:
        page = reads(shape)(answer)
        listed = entries(page)
        for one in listed:
            if isinstance(one, Carrying):
                remember_codec(one, answer.codec)
        return ListPage(listed, page.cursor)

    return CallChain(
        lambda cursor: ApiCall("GET", path, read, params={**params, **params_of(cursor=cursor)})
    )


def json_body(value: object, *, path: str = "") -> bytes:
    """Return *value* as the JSON of a request, None included.

    Raises InvalidRequest naming *path* if a text in it has half of a surrogate pair.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError as error:
        raise no_text(path or "body", error) from None


def no_text(field: str, error: UnicodeEncodeError) -> InvalidRequest:
    """Return the error about a text that UTF-8 cannot write.

    The command line makes such texts of bytes that are not UTF-8.
    """
    return InvalidRequest.of(field, f"{HALF_A_PAIR}: {error.object!r:.140}")


def without_none(**given: object) -> dict[str, Any]:
    """Return the members of *given* that are not None; the service has defaults for the others."""
    return {name: value for name, value in given.items() if value is not None}


def posts(
    path: str,
    read: Read[T],
    body: Mapping[str, Any] | None = None,
    *,
    attempt: int | None = None,
) -> ApiCall[T]:
    """A POST of the JSON *body*, with a key, so that it happens once however often it is sent."""
    return ApiCall(
        "POST",
        path,
        read,
        body=None if body is None else lambda _: json_body(body),
        key=new_idempotency_key(),
        attempt=attempt,
    )


def gets(shape: type[T], *parts: str, **params: object) -> ApiCall[T]:
    """A GET of the path of *parts*."""
    return ApiCall("GET", path_of(*parts), reads(shape), params=params_of(**params))


def deletes(*parts: str) -> ApiCall[None]:
    """A DELETE of the path of *parts*, which is not repeated: the first one may have succeeded."""
    return ApiCall("DELETE", path_of(*parts), nothing, repeatable=False)


def steps(
    shape: type[S], *parts: str, total: Callable[[Sequence[S]], S] = lambda found: found[-1]
) -> SteppedCall[S]:
    """POSTs to the path of *parts* until there is no cursor; the last answer is the *total*."""
    path, read = path_of(*parts), reads(shape)
    return SteppedCall(lambda cursor: posts(path, read, without_none(cursor=cursor)), total)


def nothing(_answer: RawAnswer) -> None:
    """Read an answer without a body."""


# ------------------------------------------------------------------------------------------ cost


@dataclass(frozen=True, slots=True)
class Consumed:
    """The number of answered calls, and the DynamoDB units that they consumed."""

    calls: int = 0
    write_units: float = 0.0
    read_units: float = 0.0

    def __add__(self, other: "Consumed") -> "Consumed":
        """Both together."""
        return Consumed(
            self.calls + other.calls,
            self.write_units + other.write_units,
            self.read_units + other.read_units,
        )


@lru_cache(256)  # calls of one kind cost alike
def _units_of(header: str) -> tuple[float, float]:
    found = _UNITS.fullmatch(header)
    return (float(found[1]), float(found[2])) if found else (0.0, 0.0)


class Usage:
    """Adds up what calls cost; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls, self._write_units, self._read_units = 0, 0.0, 0.0

    @property
    def so_far(self) -> Consumed:
        """The cost of all calls together."""
        with self._lock:
            return Consumed(self._calls, self._write_units, self._read_units)

    def add(self, header: str | None) -> None:
        """Add one answer with its header X-Consumed-Units, if it has one."""
        write, read = _units_of(header or "")
        with self._lock:
            self._calls += 1
            self._write_units += write
            self._read_units += read
