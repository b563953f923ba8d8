"""A deployment as whoever runs this program may use it: its stack, its tables, its lake.

Its tables have names that CloudFormation makes up, so that a stack can be deployed anew beside what
an older one of its name has left.  Looking for them by ListTables would need a right on all tables
of the account, and could find two; the stack's outputs say which are its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.offload import ObjectStore
from headrace.store.base import Lake
from headrace.store.dynamo.callers import CallersRights
from headrace.store.dynamo.connect import connected
from headrace.store.lake import lake_at
from headrace.store.objects import objects_at
from headrace.store.services import AwsClient, client_of, no_answer

TASKS_TABLE: Final = "TasksTableName"
CONTROL_TABLE: Final = "ControlTableName"


@dataclass(frozen=True, slots=True)
class StackFacts:
    """Outputs and parameters of a stack, by name."""

    outputs: Mapping[str, str]
    parameters: Mapping[str, str]


class Deployment:
    """The stack *stack* in *region*; credentials as every AWS SDK finds them.

    What AWS refuses, now or later, is Unauthenticated, Forbidden or InvalidRequest.
    """

    def __init__(self, region: str, stack: str) -> None:
        self._stack = stack
        self._rights = CallersRights(f"the stack {stack} in {region}")
        self._session = Session()  # one for all: a profile may have to be asked about
        self._session.set_config_variable("region", region)

    def facts(self) -> StackFacts:
        """Return the description of the stack: one call of CloudFormation.

        Raises InvalidRequest where there is no such stack, or where it is none of Headrace's, and
        Unavailable while CloudFormation does not answer.
        """
        try:
            with self._rights.translated():
                client = client_of("cloudformation", self._session)
                (found,) = client.describe_stacks(StackName=self._stack)["Stacks"]
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ValidationError":
                raise InvalidRequest.of("url", f"means {self._rights.of}: there is none") from error
            message = f"CloudFormation does not answer: {code}"
            raise Unavailable(message) from error
        except BotoCoreError as error:
            message = f"CloudFormation cannot be reached: {no_answer(error)}"
            raise Unavailable(message) from error
        facts = StackFacts(
            {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", ())},
            {one["ParameterKey"]: one["ParameterValue"] for one in found.get("Parameters", ())},
        )
        if not facts.outputs.keys() >= {TASKS_TABLE, CONTROL_TABLE}:
            state = found.get("StackStatus", "in no state")
            message = f"means {self._rights.of}, which names no tables of Headrace: it is {state}"
            raise InvalidRequest.of("url", message)
        return facts

    def client(self, url: str | None) -> AwsClient:
        """Return a client of its DynamoDB, or of the one at *url*."""
        with self._rights.translated():
            return self._rights.over(connected(url, self._session))

    def objects(self, address: str) -> ObjectStore:
        """Return the large texts of its tasks, which are kept at *address*."""
        return self._rights.over(objects_at(address, self._session))

    def lake(self, address: str) -> Lake:
        """Return the lake at *address*."""
        return self._rights.over(lake_at(address, self._session))
