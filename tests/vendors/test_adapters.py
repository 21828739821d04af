"""The checks of adapters that default tests make with stand-ins, made with the frameworks."""

from __future__ import annotations

import pytest

from tests.integrations import stand_ins
from tests.vendors.frameworks import output_of

CHECKS = "tests.integrations.adapter_checks"


@pytest.mark.parametrize("framework", [name.replace("_", "-") for name in stand_ins.FRAMEWORKS])
async def test_an_adapter_does_what_its_framework_calls(framework: str, url: str) -> None:
    """The framework's classes behave as the stand-ins for them."""
    name = framework.replace("-", "_")

    assert await output_of(framework, CHECKS, name, SANDBOXD_URL=url) == "checked"
