"""Fields of request bodies that are made from the declarations of tasks and queue settings."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, create_model

from headrace.domain.settings import Kind, Setting, own_settings
from headrace.domain.task_fields import SetBy, TaskField, texts
from headrace.http.fields import PLAIN, RequestBody, TextWithin, within, zero_or

_Body = TypeVar("_Body", bound=RequestBody)


def with_settings_of(shape: type) -> Callable[[type[_Body]], type[_Body]]:
    """Add the settings that *shape* declares to a body, except those that the body has itself."""

    def add(body: type[_Body]) -> type[_Body]:
        settings: dict[str, Any] = {
            one.name: _field(one)
            for one in own_settings(shape)
            if one.name not in body.model_fields
        }
        return _extended(body, settings)

    return add


def with_texts_of(request: SetBy) -> Callable[[type[_Body]], type[_Body]]:
    """Add the texts of a task that *request* may set, except those that the body has itself."""

    def add(body: type[_Body]) -> type[_Body]:
        return _extended(
            body,
            {
                one.api_name: (_text(one), None)
                for one in texts(request)
                if one.api_name not in body.model_fields
            },
        )

    return add


def _text(field: TaskField) -> Any:  # noqa: ANN401 (a type, with what checks it)
    low, high = field.within or (0, 0)
    description = f"{field.help[0].upper()}{field.help[1:]}. Up to {high} bytes."
    return Annotated[
        Annotated[str, TextWithin(int(high), int(low))] | None, Field(description=description)
    ]


def _extended(body: type[_Body], declared: dict[str, Any]) -> type[_Body]:
    return create_model(
        body.__name__,
        __base__=body,
        __module__=body.__module__,
        __doc__=body.__doc__,
        **declared,
    )


def _field(setting: Setting) -> tuple[Any, Any]:
    """Return the type and the default of *setting* in a body."""
    checked: Any = Annotated[(_type_of(setting), Field(description=setting.hint))]
    default: Any = ... if setting.required else setting.default
    return (checked | None if setting.nullable else checked), default


def _type_of(setting: Setting) -> Any:  # noqa: ANN401 (a type, with what checks it)
    low, high = setting.about.within
    match setting.kind:
        case Kind.TEXT:
            return Annotated[str, TextWithin(int(high), int(low))]
        case Kind.FLAG:
            return bool
        case Kind.WORD:
            return Annotated[(setting.words, Field(strict=False))]
        case Kind.WHOLE:
            return Annotated[int, within(setting.within)]
    number = Annotated[float, within(setting.within), PLAIN]
    if setting.within[0] < low:
        return Annotated[number, AfterValidator(zero_or(low, setting.about.zero))]
    return number
