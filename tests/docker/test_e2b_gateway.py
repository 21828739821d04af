"""The official E2B package from PyPI uses sandboxes of a real daemon, unchanged."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.docker.gateway import Gateway, gateway
from tests.docker.token_daemon import token_daemon
from tests.vendors.frameworks import output_of, program

METHODS = "tests.integrations.programs.e2b_methods"
OUR_OWN = {"AsyncSandbox"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with (
        token_daemon(tmp_path_factory.mktemp("tokens")) as daemon,
        gateway(daemon, "--allow-host", "*.e2b.app") as url,
    ):
        yield Gateway(daemon, url)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tried(served: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = await output_of("e2b", METHODS, **served.environment())
    return found


async def test_every_public_method_works_or_is_refused(tried: dict[str, Any]) -> None:
    """Each was called; none answers something else, and none was forgotten."""
    wrong = {
        name: answer
        for name, answer in tried["answers"].items()
        if answer not in ("works", "not offered")
    }
    assert wrong == {}, "\n".join(f"{name}: {answer}" for name, answer in wrong.items())
    assert set(tried["answers"]) - OUR_OWN == set(tried["methods"])


async def test_twenty_conversations_at_once_do_not_mix(served: Gateway) -> None:
    """Each finds its own file and no other, and ends its own sandbox."""
    module = "tests.integrations.programs.e2b_many"
    found = await output_of("e2b", module, **served.environment("bob"))

    assert found == [[str(number), "1"] for number in range(20)]
    assert await served.daemon.sessions("bob") == []


async def test_a_sandbox_belongs_to_the_user_of_its_key(served: Gateway) -> None:
    """Another user's key finds no sandbox, and its access token opens only its own."""
    ada, bob = await served.sandbox("ada"), await served.sandbox("bob")
    of_ada = ada["E2b-Sandbox-Id"]

    for method, path in (
        ("GET", f"/sandboxes/{of_ada}"),
        ("DELETE", f"/sandboxes/{of_ada}"),
        ("POST", f"/sandboxes/{of_ada}/timeout"),
        ("POST", f"/v2/sandboxes/{of_ada}/connect"),
        ("GET", f"/sandboxes/{of_ada}/metrics"),
        ("POST", f"/sandboxes/{of_ada}/pause"),
        ("POST", f"/sandboxes/{of_ada}/resume"),
        ("POST", f"/sandboxes/{of_ada}/fork"),
        ("POST", f"/sandboxes/{of_ada}/snapshots"),
    ):
        assert (await served.call(method, path, "bob", json={"timeout": 1}))[0] == 404
    listed = await served.call("GET", "/v2/sandboxes", "bob")
    assert of_ada not in listed[1].decode()
    mixed = {**ada, "X-Access-Token": bob["X-Access-Token"]}
    for headers in (mixed, {"E2b-Sandbox-Id": of_ada}, {**ada, "X-Access-Token": "0" * 48}):
        assert (await served.call("GET", "/files?path=x", headers=headers))[0] == 401
        answered = await served.call("POST", "/process.Process/List", headers=headers, data="{}")
        assert answered[0] == 401
    assert (await served.call("GET", "/health", headers=ada))[0] == 204


async def test_paused_sandboxes_and_snapshots_belong_to_the_user_of_the_key(
    served: Gateway,
) -> None:
    """Another user's key neither sees, resumes, copies nor deletes them."""
    sandbox_id = (await served.sandbox("ada"))["E2b-Sandbox-Id"]
    status, made = await served.call("POST", f"/sandboxes/{sandbox_id}/snapshots", json={})
    assert status == 201
    snapshot_id = json.loads(made)["snapshotID"]
    assert (await served.call("POST", f"/sandboxes/{sandbox_id}/pause", json={}))[0] == 204

    for method, path in (
        ("GET", f"/sandboxes/{sandbox_id}"),
        ("DELETE", f"/sandboxes/{sandbox_id}"),
        ("POST", f"/v2/sandboxes/{sandbox_id}/connect"),
        ("POST", f"/sandboxes/{sandbox_id}/resume"),
        ("DELETE", f"/templates/{snapshot_id}"),
        ("POST", f"/v2/sandboxes/{snapshot_id}/connect"),
    ):
        assert (await served.call(method, path, "bob", json={}))[0] == 404
    copied = await served.call("POST", "/v2/sandboxes", "bob", json={"templateID": snapshot_id})
    assert copied[0] == 404
    assert json.loads((await served.call("GET", "/snapshots", "bob"))[1]) == []
    listed = await served.call("GET", "/v2/sandboxes?state=paused", "bob")
    assert json.loads(listed[1]) == []

    status, _ = await served.call("POST", f"/sandboxes/{sandbox_id}/resume", json={})
    assert status == 201
    assert (await served.call("DELETE", f"/sandboxes/{sandbox_id}"))[0] == 204
    assert (await served.call("DELETE", f"/templates/{snapshot_id}"))[0] == 204


@pytest.mark.parametrize(("key", "status"), [("", 401), ("sbx_none", 401), ("e2b_zz", 401)])
async def test_a_request_without_a_valid_key_is_refused(
    served: Gateway, key: str, status: int
) -> None:
    for method, path in (("GET", "/v2/sandboxes"), ("POST", "/v2/sandboxes")):
        assert (await served.call(method, path, key, json={"templateID": "base"}))[0] == status


async def test_a_token_that_may_only_read_creates_nothing(served: Gateway) -> None:
    made = await served.call("POST", "/v2/sandboxes", "reader", json={"templateID": "base"})
    assert made[0] == 403


async def test_a_key_of_the_form_that_some_sdks_want(served: Gateway) -> None:
    """e2b_ and the token in hexadecimal digits is the same key."""
    key = f"e2b_{served.daemon.tokens['ada'].encode().hex()}"
    assert (await served.call("GET", "/v2/sandboxes", key))[0] == 200


async def test_a_request_that_is_sent_twice_creates_one_sandbox(served: Gateway) -> None:
    headers = {"Idempotency-Key": "the same"}
    body = {"templateID": "base"}
    first = await served.call("POST", "/v2/sandboxes", headers=headers, json=body)
    again = await served.call("POST", "/v2/sandboxes", headers=headers, json=body)
    assert json.loads(first[1])["sandboxID"] == json.loads(again[1])["sandboxID"]


async def test_a_copy_that_is_asked_for_twice_is_made_once(served: Gateway) -> None:
    """Also a sandbox from a snapshot; a number of forks that is not allowed is refused."""
    sandbox = await served.sandbox()
    sandbox_id = sandbox["E2b-Sandbox-Id"]
    await served.call("POST", "/files?path=kept", headers=sandbox, data=b"kept")
    _, made = await served.call("POST", f"/sandboxes/{sandbox_id}/snapshots", json={"name": "n"})
    snapshot_id = json.loads(made)["snapshotID"]
    options = {"headers": {"Idempotency-Key": "copy"}, "json": {"templateID": snapshot_id}}
    first = await served.call("POST", "/v2/sandboxes", **options)
    again = await served.call("POST", "/v2/sandboxes", **options)

    copy = json.loads(first[1])
    assert (first[0], again[0]) == (201, 201)
    assert json.loads(again[1])["sandboxID"] == copy["sandboxID"]
    access = {"E2b-Sandbox-Id": copy["sandboxID"], "X-Access-Token": copy["envdAccessToken"]}
    assert await served.call("GET", "/files?path=kept", headers=access) == (200, b"kept")
    for body in ({"count": 0}, {"count": 21}, {"count": "x"}, {"timeout": -1}):
        assert (await served.call("POST", f"/sandboxes/{sandbox_id}/fork", json=body))[0] == 400
    for body in ({"name": 7}, {"name": "x" * 61}, {"name": "a\nb"}):
        path = f"/sandboxes/{sandbox_id}/snapshots"
        assert (await served.call("POST", path, json=body))[0] == 400
    for one in (sandbox_id, copy["sandboxID"]):
        assert (await served.call("DELETE", f"/sandboxes/{one}"))[0] == 204
    assert (await served.call("DELETE", f"/templates/{snapshot_id}"))[0] == 204


@pytest.mark.parametrize(
    "options",
    [
        {"autoPause": True},
        {"network": {"denyOut": ["0.0.0.0/0"]}},
        {"volumeMounts": [{"name": "v", "path": "/v"}]},
        {"timeout": -1},
        {"timeout": 10**9},
        {"metadata": {"a": 1}},
        {"metadata": {"a": "x" * 1000}},
        {"envVars": [1]},
        {"templateID": "no-such-environment"},
    ],
    ids=str,
)
async def test_what_cannot_be_done_is_refused(served: Gateway, options: dict[str, Any]) -> None:
    """A sandbox that is not what was asked for is never created."""
    before = len(await served.daemon.sessions("ada"))
    body = {"templateID": "base", **options}
    status, _ = await served.call("POST", "/v2/sandboxes", json=body)

    assert status in (400, 404, 501)
    assert len(await served.daemon.sessions("ada")) == before


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0\0\0\0\2[]",
        b"\0\0\0\0\1{",
        b"\1\0\0\0\2{}",
        b"\0\xff\xff\xff\xff",
        b"\0\0\0\0\2{}",
        b'\0\0\0\0\x0f{"process":"no"}',
        b'\0\0\0\0\x14{"process":{"cmd":1}}'[:25],
    ],
    ids=repr,
)
async def test_a_stream_of_nonsense_is_refused_in_words(served: Gateway, data: bytes) -> None:
    """Whatever a caller sends, the last frame says what is wrong with it."""
    sandbox = await served.sandbox()
    headers = {**sandbox, "Content-Type": "application/connect+json"}
    status, body = await served.call("POST", "/process.Process/Start", headers=headers, data=data)

    assert status == 200
    assert body[0] == 2
    error = json.loads(body[5:])["error"]
    assert error["code"] in ("invalid_argument", "unimplemented", "resource_exhausted")
    assert error["message"]
    await served.call("DELETE", f"/sandboxes/{sandbox['E2b-Sandbox-Id']}")


async def test_a_file_that_is_too_large_is_refused(served: Gateway) -> None:
    """Also if it is packed: what counts is what comes out."""
    sandbox = await served.sandbox()
    packed = gzip.compress(bytes(110 << 20), compresslevel=1)
    headers = {**sandbox, "Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    status, _ = await served.call("POST", "/files?path=big", headers=headers, data=packed)

    assert status == 413
    assert (await served.call("GET", "/files?path=big", headers=sandbox))[0] == 404
    await served.call("DELETE", f"/sandboxes/{sandbox['E2b-Sandbox-Id']}")


async def test_a_restarted_gateway_asks_for_a_new_connection(served: Gateway) -> None:
    """It does not claim that the sandbox is gone; after `connect` everything is there."""
    sandbox = await served.sandbox()
    await served.call("POST", "/files?path=kept", headers=sandbox, data=b"kept")
    async with gateway(served.daemon) as url:
        other = Gateway(served.daemon, url)
        assert (await other.call("GET", "/files?path=kept", headers=sandbox))[0] == 401
        sandbox_id = sandbox["E2b-Sandbox-Id"]
        _, body = await other.call("POST", f"/v2/sandboxes/{sandbox_id}/connect", json={})
        access = {**sandbox, "X-Access-Token": json.loads(body)["envdAccessToken"]}
        assert await other.call("GET", "/files?path=kept", headers=access) == (200, b"kept")
    await served.call("DELETE", f"/sandboxes/{sandbox_id}")


async def test_the_example(served: Gateway) -> None:
    async with program("e2b", "examples/e2b_program.py", **served.environment()) as process:
        async with asyncio.timeout(60):
            printed, _ = await process.communicate()

    assert printed.decode().splitlines() == ["largest: 3", "/workspace/numbers.txt 6 bytes"]


async def test_one_user_on_loopback_needs_no_key(served: Gateway) -> None:
    async with gateway(
        served.daemon, "--user", "ada", "--token", served.daemon.tokens["ada"]
    ) as url:
        assert (await Gateway(served.daemon, url).call("GET", "/v2/sandboxes", "any"))[0] == 200


async def test_the_code_interpreter(served: Gateway) -> None:
    """run_code and the contexts of the official package: results, output, errors, state."""
    answer = await output_of(
        "e2b", "tests.integrations.programs.e2b_code", **served.environment("bob")
    )
    assert answer == "works", answer
