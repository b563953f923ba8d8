"""Keep the values of a form whose session had ended over the sign-in, and show them again.

The values are in a signed field of the page, not in an address, a cookie or a record.  Nothing
happens until the visitor sends the form again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from headrace.domain.limits import utf8_bytes

from .pages import Page
from .parts import Choice, Confirm, Hidden, Link
from .request import ConsoleRequest, Values
from .request_context import TOKEN, RequestContext, elsewhere
from .session import SESSION, CookieSigning

FIELD: Final = "kept"
RESUME: Final = "resume"
"""The field of a form that is shown again and not carried out."""

_MOST: Final = 512 * 1024  # bytes of a form, beyond which it is not kept
_NEVER: Final = (TOKEN, FIELD, RESUME)


@dataclass(frozen=True, slots=True)
class KeptForm:
    """The target and the fields of a form."""

    target: str
    fields: Values

    def written(self, signing: CookieSigning) -> str:
        """Return the form as text for a hidden field."""
        return signing.write(FIELD, [self.target, {name: [*v] for name, v in self.fields.items()}])


def kept_form(request: ConsoleRequest, signing: CookieSigning) -> KeptForm | None:
    """Return the form of *request*; None for a form of another site or one that is too long."""
    token = request.given(TOKEN)
    named = signing.named(request.cookies.get(SESSION, ""))
    ours = signing.is_form_token(token, named[1]) if named else bool(signing.read("form", token))
    if elsewhere(request) or not ours:
        return None
    fields = {name: values for name, values in request.form.items() if name not in _NEVER}
    if sum(utf8_bytes(text) for values in fields.values() for text in values) > _MOST:
        return None
    return KeptForm(request.target, fields)


def read_kept(text: str, signing: CookieSigning) -> KeptForm | None:
    """Return the form in a text of `written`; None for another text."""
    match signing.read(FIELD, text):
        case [str(target), dict(fields)]:
            return KeptForm(target, {str(name): tuple(v) for name, v in fields.items()})
        case _:
            return None


def go_on(kept: KeptForm, context: RequestContext, *, has_page: bool) -> Page:
    """Return the page from which the visitor continues with *kept*."""
    target = context.request.urls.safe_next(kept.target)
    hidden = tuple(Hidden(name, text) for name, texts in kept.fields.items() for text in texts)
    if has_page:
        detail = "What you typed is kept. Nothing was done with it."
        hidden = (*hidden, Hidden(RESUME, "yes"))
    else:
        detail = "Your session had ended, so nothing was done."
    choice = "Back to the form" if has_page else "Send it again"
    back = Link("Cancel", context.request.urls.root)
    form = Confirm(target, (Choice("", choice),), back, hidden=hidden)
    return Page("go_on.html", title="Signed in", detail=detail, form=form)


def shown_again(context: RequestContext) -> RequestContext:
    """Return *context* as a GET request for the page of the form, with its values."""
    fields: Mapping[str, tuple[str, ...]] = {
        name: values for name, values in context.request.form.items() if name not in _NEVER
    }
    return replace(context, request=replace(context.request, method="GET", form=fields))
