"""The parameter by which lists other than that of tasks are searched."""

from typing import Annotated, Any, Final, TypeAlias, TypeVar

from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import WithJsonSchema

from headrace.domain.list_query import EVERY_ROW, ListLanguage, ListQuery
from headrace.domain.query_grammar import MOST

Row = TypeVar("Row")

_DESCRIPTION: Final = (
    "In the language of the console's search boxes, with the keys that are named above. All terms "
    "must hold; a word without a key is a part of any of a row's texts, in whichever case. A page "
    "may be short, or empty, and still have a cursor."
)

ListQueryText: TypeAlias = Annotated[
    Annotated[str, WithJsonSchema({"type": "string", "maxLength": MOST})] | None,
    Query(description=_DESCRIPTION),
]


def asked(language: ListLanguage[Row], text: str | None) -> ListQuery[Row]:
    """Return what *text* asks of a list.  Raises InvalidRequest naming ``query``."""
    return EVERY_ROW if text is None else language.read(text)


def keys_of(language: ListLanguage[Any]) -> str:
    """Return the sentence of a list's description that names the keys of its queries."""
    return f" `query` has the keys {', '.join(f'`{key}:`' for key in language.keys)}."
