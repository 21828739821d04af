"""What the E2B gateway refuses before it looks at a sandbox; no daemon is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import test_utils
from aiohttp.test_utils import TestServer, make_mocked_request

from sandboxd_client.integrations.callers import Callers
from sandboxd_client.integrations.e2b.boxes import is_signed
from sandboxd_client.integrations.e2b.gateway import build_app
from sandboxd_client.site_names import SiteNames

TestClient: TypeAlias = test_utils.TestClient[Any, Any]
KEY = {"X-API-Key": "any"}
NOT_OFFERED = 501
"""Answer of a path that is none: the request has passed the guard."""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[TestClient]:
    """A gateway with --user: it asks for no token."""
    callers = Callers(f"unix:{tmp_path}/none", user_id="ada")
    app = build_app(callers, SiteNames("127.0.0.1", ["boxes.example", "*.boxes.example"]))
    async with test_utils.TestClient(TestServer(app)) as client:
        yield client


async def answer(
    gateway: TestClient, headers: Mapping[str, str], path: str = "/none", method: str = "GET"
) -> int:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as http,
        http.request(method, gateway.make_url(path), headers=headers) as response,
    ):
        return response.status


@pytest.mark.parametrize("host", ["evil.example", "evil.example:5049", "127.0.0.1.evil.example"])
async def test_a_name_that_was_pointed_at_this_host_is_refused(
    gateway: TestClient, host: str
) -> None:
    """DNS rebinding: a page can then set any header, but not Host."""
    assert await answer(gateway, {**KEY, "Host": host}) == 421


@pytest.mark.parametrize(
    "foreign",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_page_of_another_site_is_refused(
    gateway: TestClient, foreign: Mapping[str, str], method: str
) -> None:
    """Also one of another service on this machine, such as a preview."""
    assert await answer(gateway, {**KEY, **foreign}, "/sandboxes", method) == 403


async def test_requests_of_programs_pass(gateway: TestClient) -> None:
    """Under every name of the gateway, also through something that ended TLS in front of it."""
    port = gateway.port
    for headers in (
        {},
        {"Host": f"localhost:{port}"},
        {"Host": "[::1]:1"},
        {"Host": "49983-ses_1.boxes.example"},
        {"Host": "boxes.example", "Origin": "https://boxes.example"},
        {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ):
        assert await answer(gateway, headers) == NOT_OFFERED, headers


async def test_a_call_without_a_key_is_refused_also_with_a_fixed_user(gateway: TestClient) -> None:
    """A page cannot send the header of the key unasked; every SDK does."""
    assert await answer(gateway, {}, "/sandboxes") == 401


async def test_a_message_that_is_not_declared_as_json_is_refused(gateway: TestClient) -> None:
    """As forms and `fetch` without a preflight send it."""
    body = '{"templateID":"base"}'
    async with gateway.post(
        "/sandboxes", data=body, headers={**KEY, "Content-Type": "text/plain"}
    ) as refused:
        assert refused.status == 400
        assert "application/json" in (await refused.json())["message"]


@pytest.mark.parametrize("expires", ["9" * 5000, "1e9", "²", "-1", "1700000000"])
def test_a_signed_url_with_a_strange_expiry_is_refused(expires: str) -> None:
    """Also one that Python refuses to read as a number."""
    address = f"/files?path=a&signature=v1_x&signature_expiration={quote(expires)}"
    assert not is_signed(make_mocked_request("GET", address), "token")


async def test_a_signed_url_is_for_pages_too(gateway: TestClient) -> None:
    """It is a right by itself; without one the page is refused before the sandbox is looked at."""
    page = {"Origin": "http://app.example", "E2b-Sandbox-Id": "ses_1"}
    assert await answer(gateway, page, "/files?path=a&signature=v1_x") == 401
    assert await answer(gateway, page, "/files?path=a") == 403
