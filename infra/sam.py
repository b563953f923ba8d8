"""`python -m infra.sam`: template.yaml for `sam local`, whose tables are DynamoDB Local's.

With ``--tables`` it makes these tables instead.  What SAM's emulation does not have is left out:
Secrets Manager, so the keys are in the environment, and the lake.
"""

import json
import sys
from typing import Any, Final

import boto3

from headrace.local.tables import TableNames, create_tables, table_requests
from infra.template import Template, load_template

HERE: Final = "http://127.0.0.1:8000"
FROM_A_CONTAINER: Final = "http://host.docker.internal:8000"
NAMES: Final = TableNames("headrace-tasks", "headrace-control")
SETTINGS: Final = {
    "HEADRACE_DYNAMODB_URL": FROM_A_CONTAINER,
    "HEADRACE_TASKS_TABLE": NAMES.tasks,
    "HEADRACE_CONTROL_TABLE": NAMES.control,
    "HEADRACE_ADMIN_KEY": "a-key-for-trying-it",
    "HEADRACE_SESSION_SECRET": "a-secret-of-sessions-for-trying-it",
    "HEADRACE_LAKE": "none",
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
}


def template_for_sam_local() -> Template:
    """Return the template with an environment in which its functions run on one machine."""
    template = load_template()
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            environment = resource["Properties"].setdefault("Environment", {"Variables": {}})
            variables: dict[str, Any] = environment["Variables"]
            for name in [name for name in variables if name.endswith("_ARN")]:
                del variables[name]
            variables.update(SETTINGS)
    return template


def main(arguments: list[str]) -> None:
    """Print the template, or make the tables."""
    if arguments == ["--tables"]:
        credentials = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        client = boto3.client("dynamodb", endpoint_url=HERE, region_name="us-east-1", **credentials)
        create_tables(client, table_requests(), NAMES)
    else:
        print(json.dumps(template_for_sam_local(), indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
