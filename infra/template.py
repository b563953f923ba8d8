"""`python -m infra.template`: the part of template.yaml that the local service needs, as JSON.

The wheel has no template.yaml, and reading 2,000 lines of YAML at each start would take longer than
all else; so the package holds this part of it.  With ``--check`` nothing is written: exit status 1
if it is not what the template makes of it.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from headrace.local import TemplateInvalid
from headrace.local.tables import Template
from infra import PROJECT_ROOT

TEMPLATE: Final = PROJECT_ROOT / "template.yaml"
PART: Final = PROJECT_ROOT / "functions" / "headrace" / "local" / "template.json"

_FUNCTION: Final = ("Handler", "Timeout", "MemorySize")
_API: Final = ("Method", "Path")
_TABLE: Final = (
    "AttributeDefinitions",
    "KeySchema",
    "GlobalSecondaryIndexes",
    "LocalSecondaryIndexes",
    "BillingMode",
    "StreamSpecification",
    "TimeToLiveSpecification",
)
_EVENTS: Final = {"Api": _API}
_RESOURCES: Final = {
    "AWS::DynamoDB::Table": _TABLE,
    "AWS::Serverless::Function": _FUNCTION,
}


def main(arguments: list[str], template: Path = TEMPLATE, part: Path = PART) -> int:
    """Write the part, or check it; return the exit status."""
    made = text_of(part_of(load_template(template)))
    if arguments == ["--check"]:
        if part.is_file() and part.read_text(encoding="utf-8") == made:
            return 0
        print(f"{part.name} is not what {template.name} says: make local-template", file=sys.stderr)
        return 1
    part.write_text(made, encoding="utf-8")
    return 0


def load_template(path: Path = TEMPLATE) -> Template:
    """Read template.yaml; CloudFormation's tags become plain data (`!Ref X` is `{"Ref": "X"}`).

    Raises:
        TemplateInvalid: the file is missing or is not a template.

    """
    try:
        template = yaml.load(path.read_text(encoding="utf-8"), _TemplateLoader)  # noqa: S506 (a SafeLoader)
    except (OSError, yaml.YAMLError) as error:
        raise TemplateInvalid(
            f"{path.name} cannot be read: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(template, dict) or not isinstance(template.get("Resources"), dict):
        raise TemplateInvalid(f"{path.name} is not a template: it has no Resources.")
    return template


def part_of(template: Template) -> Template:
    """Return the part that tables and routes are made from."""
    shared = template.get("Globals", {}).get("Function", {})
    return {
        "Globals": {"Function": _kept(shared, _FUNCTION)},
        "Resources": {
            name: _resource(resource)
            for name, resource in template["Resources"].items()
            if resource["Type"] in _RESOURCES
        },
    }


def text_of(part: Template) -> str:
    """The part as the package holds it: one line an entry, so that a change can be read."""
    return json.dumps(part, indent=1) + "\n"


def _resource(resource: dict[str, Any]) -> dict[str, Any]:
    properties = _kept(resource["Properties"], _RESOURCES[resource["Type"]])
    events = resource["Properties"].get("Events", {})
    if events:
        properties["Events"] = {name: _event(event) for name, event in events.items()}
    return {"Type": resource["Type"], "Properties": properties}


def _event(event: dict[str, Any]) -> dict[str, Any]:
    kept = _kept(event.get("Properties", {}), _EVENTS.get(event["Type"], ()))
    return {"Type": event["Type"], "Properties": kept}


def _kept(properties: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: properties[name] for name in names if name in properties}


class _TemplateLoader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags."""


def _construct_tag(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.MappingNode):
        value: Any = loader.construct_mapping(node, deep=True)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = node.value
    return {suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}": value}


_TemplateLoader.add_multi_constructor("!", _construct_tag)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
