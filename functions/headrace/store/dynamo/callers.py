"""What AWS refuses to whoever runs this program, by credentials and rights, as errors of ours.

In a deployment IAM refuses nothing unless the deployment is wrong: a defect, a 500.  Where a
program uses the tables by its own rights, its owner has to mend them, and must learn which action.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar, cast

from botocore.exceptions import (
    ClientError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
)

from headrace.domain.errors import Forbidden, HeadraceError, InvalidRequest, Unauthenticated

_T = TypeVar("_T")

_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_UNKNOWN: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_MISSING: Final = frozenset({"ResourceNotFound", "ResourceNotFoundException"})
_NONE: Final = (
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
)


@dataclass(frozen=True, slots=True)
class CallersRights:
    """A way to AWS by the rights of whoever runs this program; *of* names the stack."""

    of: str

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what only they can mend into Unauthenticated, Forbidden or InvalidRequest."""
        try:
            yield
        except ClientError as error:
            found = self._error(error.response["Error"], error.operation_name)
            if found is None:
                raise
            raise found from error
        except _NONE as error:
            message = f"AWS takes no call without credentials: {error}"
            raise Unauthenticated(message) from error

    def over(self, used: _T) -> _T:
        """Return *used*, a client or a lake, with the errors of all that it does turned so."""
        return cast("_T", _Translated(self, used))

    def look_at(self, answer: object) -> None:
        """Raise the error of the first statement of a batch that they may not make."""
        for response in answer.get("Responses", ()) if isinstance(answer, dict) else ():
            failed = response.get("Error") if isinstance(response, dict) else None
            found = failed and self._error(failed, "BatchExecuteStatement")
            if found:
                raise found

    def _error(self, failed: dict[str, str], operation: str) -> HeadraceError | None:
        code, reason = failed.get("Code", ""), failed.get("Message") or "it does not say why"
        if code in _DENIED:
            return Forbidden(f"IAM refuses {operation} on {self.of}: {reason}")
        if code in _UNKNOWN:
            return Unauthenticated(f"AWS does not take these credentials ({code}): {reason}")
        if code in _MISSING:
            return InvalidRequest.of("url", f"means {self.of}, which has no such table: {reason}")
        return None


class _Translated:
    def __init__(self, rights: CallersRights, used: object) -> None:
        self._rights, self._used = rights, used

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever it has
        found = getattr(self._used, name)
        if not callable(found):
            return found
        translated = self._wrapped(found)
        setattr(self, name, translated)  # from now on looked up without coming this way
        return translated

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def called(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  the call's own
            with self._rights.translated():
                answer = call(*arguments, **named)
            self._rights.look_at(answer)
            return answer

        return called
