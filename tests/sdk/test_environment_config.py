"""`environment_type` and `environment_config`: what programs have as a JSON document."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest

from sandboxd_client import InvalidRequestError
from sandboxd_client.session import open_session
from sandboxd_client.settings import Timeouts

DOCUMENT = """
{
  "environment_type": "python3.11",
  "environment_config": {
    "packages": ["tensorflow", "keras"],
    "env_vars": {
      "DEBUG": "1"
    }
  }
}
"""


class Sent(Exception):
    """A request, in place of its answer."""


class Connection:
    timeouts = Timeouts()

    async def call(self, method: object, request: Any, *, timeout: float) -> NoReturn:
        raise Sent(request)


async def sent(**arguments: Any) -> Any:
    with pytest.raises(Sent) as caught:
        await open_session(Connection(), "ada", "42", **arguments)  # type: ignore[arg-type]
    return caught.value.args[0]


async def test_document_says_the_same_as_the_parameters() -> None:
    """Its two keys are passed on as they are."""
    by_document = await sent(**json.loads(DOCUMENT))

    assert by_document == await sent(
        environment="python3.11", packages=["tensorflow", "keras"], env_vars={"DEBUG": "1"}
    )
    assert list(by_document.environment_config.packages) == ["tensorflow", "keras"]
    assert (await sent(environment_config={})).HasField("environment_config")
    assert not (await sent()).HasField("environment_config")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"environment_config": {"package": []}}, "'package' is unknown.*packages and env_vars"),
        ({"environment_config": {"env_vars": {"DEBUG": 1}}}, "write .*env_vars.*not .*DEBUG"),
        ({"environment_config": {"packages": 3}}, "write .*packages"),
        ({"environment_config": {}, "packages": []}, "give it, or packages and env_vars"),
        ({"environment": "data", "environment_type": "node20"}, "environment and environment_type"),
    ],
)
async def test_what_is_meant_is_asked(arguments: dict[str, Any], message: str) -> None:
    """Nothing is sent that would be understood by half."""
    with pytest.raises(InvalidRequestError, match=message):
        await open_session(Connection(), "ada", "42", **arguments)  # type: ignore[arg-type]
