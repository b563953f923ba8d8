"""template.yaml, as the local service and every test take it."""

from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from headrace.local import EndpointRefused, TemplateInvalid
from headrace.local.tables import (
    TableNames,
    Template,
    create_tables,
)
from infra.template import load_template
from tests.processes import free_port


def test_a_missing_template_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(TemplateInvalid, match=r"^template\.yaml cannot be read: [^\n]+$"):
        load_template(tmp_path / "template.yaml")


def test_an_endpoint_that_does_not_answer_is_told_in_one_line(template: Template) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    nobody = boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}),
    )

    told = (
        rf"^The tables cannot be set up at {url}: nothing answers there;"
        r" check whether it is started, and HEADRACE_DYNAMODB_URL$"
    )
    with pytest.raises(EndpointRefused, match=told):
        create_tables(nobody, template, TableNames())
