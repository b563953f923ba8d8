"""Whether an answer is as the OpenAPI document says, every member of it and no other."""

from functools import cache
from typing import Any

import jsonschema_rs

from headrace.http.app import TABLE
from headrace.http.openapi import document


def check_documented(name: str, answer: Any) -> None:
    """Raise ValidationError unless *answer* is what the document calls *name*."""
    _validator(name).validate(answer)


@cache
def _validator(name: str) -> jsonschema_rs.Draft202012Validator:
    components = document(TABLE.routes)["components"]
    schema = {"$ref": f"#/components/schemas/{name}", "components": components}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
