"""template.yaml, as the local service and every test take it."""

from collections.abc import Callable
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


@pytest.fixture
def template_file(tmp_path: Path) -> Callable[[str], Template]:
    def load(text: str) -> Template:
        path = tmp_path / "template.yaml"
        path.write_text(text, encoding="utf-8")
        return load_template(path)

    return load


def test_cloudformations_tags_become_plain_data(template_file: Callable[[str], Template]) -> None:
    loaded = template_file(
        "Resources: {A: !Ref B, C: !Sub '${D}/e', F: !GetAtt G.Arn, H: !Join ['', [a, !Ref I]],"
        " J: !If [K, {L: 1}, !Ref 'AWS::NoValue']}"
    )

    assert loaded["Resources"] == {
        "A": {"Ref": "B"},
        "C": {"Fn::Sub": "${D}/e"},
        "F": {"Fn::GetAtt": "G.Arn"},
        "H": {"Fn::Join": ["", ["a", {"Ref": "I"}]]},
        "J": {"Fn::If": ["K", {"L": 1}, {"Ref": "AWS::NoValue"}]},
    }


@pytest.mark.parametrize("text", ["- a list", "no: resources", "{", "Resources: text"])
def test_what_is_no_template_is_refused_in_one_line(
    template_file: Callable[[str], Template], text: str
) -> None:
    with pytest.raises(TemplateInvalid, match=r"^template\.yaml [^\n]+$"):
        template_file(text)


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
