"""`python -m infra.template`: the tables of template.yaml as the local service creates them.

The wheel has no template.yaml, and to read 2,000 lines of YAML takes seconds.  So the package
holds the requests as JSON.  With ``--check`` nothing is written: exit status 1 if the file is out
of date.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from headrace.local.tables import TableRequest
from infra import PROJECT_ROOT

Template: TypeAlias = dict[str, Any]

TEMPLATE: Final = PROJECT_ROOT / "template.yaml"
SPARK: Final = PROJECT_ROOT / "infra" / "spark.yaml"
WAF: Final = PROJECT_ROOT / "infra" / "waf.yaml"
PART: Final = PROJECT_ROOT / "functions" / "headrace" / "local" / "tables.json"

_TABLE: Final = (
    "AttributeDefinitions",
    "KeySchema",
    "GlobalSecondaryIndexes",
    "LocalSecondaryIndexes",
    "BillingMode",
)


class TemplateInvalid(Exception):
    """template.yaml is missing, or is not a template."""


def main(arguments: list[str], template: Path = TEMPLATE, part: Path = PART) -> int:
    """Write the part, or check it; return the exit status."""
    made = json.dumps(requests_of(load_template(template)), indent=1) + "\n"
    if arguments == ["--check"]:
        if part.is_file() and part.read_text(encoding="utf-8") == made:
            return 0
        print(f"{part.name} is not what {template.name} says: make local-template", file=sys.stderr)
        return 1
    part.write_text(made, encoding="utf-8")
    return 0


def load_template(path: Path = TEMPLATE) -> Template:
    """Read template.yaml or that of a nested stack.

    CloudFormation's tags become plain data: `!Ref X` is `{"Ref": "X"}`.

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


def with_nested_stacks(template: Template) -> Template:
    """Return *template* with the resources of its nested stacks, each after its stack's name."""
    resources = dict(template["Resources"])
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::CloudFormation::Stack":
            nested = load_template(PROJECT_ROOT / resource["Properties"]["TemplateURL"])
            resources |= {f"{name}{inner}": of for inner, of in nested["Resources"].items()}
    return {**template, "Resources": resources}


def requests_of(template: Template) -> dict[str, TableRequest]:
    """Return the requests that create the tables of *template*."""
    return {
        name: _requests(resource["Properties"])
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::DynamoDB::Table"
    }


def _requests(properties: dict[str, Any]) -> TableRequest:
    create: dict[str, Any] = {name: properties[name] for name in _TABLE if name in properties}
    if stream := properties.get("StreamSpecification"):
        view = stream["StreamViewType"]
        create["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": view}
    ttl = properties.get("TimeToLiveSpecification")
    return {"create": create, "ttl": ttl} if ttl else {"create": create}


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
