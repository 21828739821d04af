"""The SDK and several daemons: sessions are called where they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd_client import AsyncSandboxClient, OwnershipUnknownError
from sandboxd_client.remote import RemoteTransport
from sandboxd_client.settings import Settings
from tests.cluster.nodes import PATIENCE, Node, Start
from tests.ports import free_port
from tests.service.test_listeners import Pki

TOKEN = new_token()


@pytest.fixture
def tokens_file(short_dir: Path) -> Path:
    file = short_dir / "tokens"
    file.write_text(line(Caller(name="ada", scope=Scope.USER, user_id="ada"), hash_of(TOKEN)))
    file.chmod(0o600)
    return file


@pytest.fixture
async def nodes(start: Start, tokens_file: Path) -> list[Node]:
    """Three that know the token."""
    return [await start(name, tokens_file=tokens_file) for name in ("a", "b", "c")]


def client_of(node: Node, scheme: str = "grpc://") -> AsyncSandboxClient:
    url = f"{scheme}127.0.0.1:{node.daemon.config.port}"
    return AsyncSandboxClient(server_url=url, token=TOKEN)


def owner_of(nodes: list[Node]) -> Node:
    (owner,) = [node for node in nodes if node.daemon.sessions.active_count]
    return owner


def calls_of(node: Node) -> Counter[str]:
    node.daemon.journal.flush()
    return Counter(node.daemon.journal.statistics.calls)


async def open_elsewhere(
    nodes: list[Node], scheme: str = "grpc://"
) -> tuple[AsyncSandboxClient, Node, Node]:
    """A client with an open session; the worker it was given, and another that has the session."""
    async with client_of(nodes[0], scheme) as opening:
        await opening.get_or_create_session("ada", "t")
        owner = owner_of(nodes)
        first = next(node for node in nodes if node is not owner)
        client = client_of(first, scheme)
        await client.get_or_create_session("ada", "t")
        opening._threads.clear()  # or it would close the session
    return client, first, owner


async def test_calls_of_a_session_go_to_its_worker(nodes: list[Node]) -> None:
    """After the first refusal none passes through the worker that the client was given."""
    client, first, owner = await open_elsewhere(nodes)
    async with client:
        assert (await client.execute("echo 0")).stdout == "0\n"
        before, before_owner = calls_of(first), calls_of(owner)
        for number in range(1, 4):
            assert (await client.execute(f"echo {number}")).stdout == f"{number}\n"
        await client.upload_file_from_bytes("a", b"b")
        assert await client.sandbox.files.read("a", format="bytes") == b"b"
        background = await client.sandbox.commands.run("echo hi", background=True)
        assert (await background.wait()).stdout == "hi\n"

        assert calls_of(first) - before == Counter()
        made = calls_of(owner) - before_owner
        assert (made["Run"], made["UploadFile"], made["StartExec"]) == (3, 1, 1)
        refused = first.daemon.journal.statistics.refusals
        assert refused["OWNED_ELSEWHERE"] == 1


async def test_foreign_address_gets_no_token(start: Start, tokens_file: Path) -> None:
    """What a worker says of its address is not believed: its calls are passed on by the first."""
    ports = [free_port() for _ in range(3)]
    nodes = [
        await start(
            name, tokens_file=tokens_file, port=port, advertise=f"0.0.0.0:{port}", host="127.0.0.1"
        )
        for name, port in zip("abc", ports, strict=True)
    ]
    client, first, owner = await open_elsewhere(nodes)
    async with client:
        for number in range(3):
            assert (await client.execute(f"echo {number}")).stdout == f"{number}\n"

        assert calls_of(owner)["Run"] == 3
        assert calls_of(first)["Run"] == 4  # one of them refused


async def test_certified_workers_are_called_directly(
    start: Start, tokens_file: Path, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the CA of the cluster set, a client follows to any address that has a certificate of
    it; a peer with another one cannot be reached, so it gets no call and no token."""
    pki, foreign = _pki(short_dir / "pki"), _pki(short_dir / "foreign")
    secure = {"tls_cert": pki.cert, "tls_key": pki.key, "cluster_ca_file": pki.ca}
    nodes = [await start(name, tokens_file=tokens_file, **secure) for name in ("a", "b")]
    monkeypatch.setenv("SANDBOXD_CA_FILE", str(pki.ca))
    client, first, owner = await open_elsewhere(nodes, scheme="https://")
    async with client:
        await client.execute("echo 0")
        before = calls_of(first)
        assert (await client.execute("echo 1")).stdout == "1\n"
        assert calls_of(first) == before
        assert calls_of(owner)["Run"] == 2

    trusting = Settings("remote", f"127.0.0.1:{owner.daemon.config.port}", is_secure=True)
    for ca, is_reached in ((pki.ca, True), (foreign.ca, False)):
        transport = RemoteTransport(replace(trusting, token=TOKEN, ca_file=str(ca)))
        await transport.start()
        assert await transport.reaches(PATIENCE) is is_reached
        await transport.aclose()


def _pki(directory: Path) -> Pki:
    directory.mkdir()
    return Pki(directory)


async def test_moved_session_heals(nodes: list[Node]) -> None:
    """Its worker is cut off and others take it over: the client goes on at the next owner."""
    client, first, owner = await open_elsewhere(nodes)
    async with client:
        await client.execute("echo before")
        membership = owner.daemon.sessions.ownership.directory.membership  # type: ignore[attr-defined]
        await membership.stop()

        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    result = await client.execute("echo after")
                except OwnershipUnknownError:
                    continue
                assert result.stdout == "after\n"
                if result.session is not None:
                    break
                await asyncio.sleep(0.05)

        assert result.session.status == "recreated"
        new = next(node for node in nodes if node is not owner and _has(node, client.session_id))
        assert (await client.execute("echo settled")).stdout == "settled\n"
        before, before_new = calls_of(first), calls_of(new)
        assert (await client.execute("echo direct")).stdout == "direct\n"
        assert (calls_of(new) - before_new)["Run"] == 1
        if new is not first:
            assert calls_of(first) == before


def _has(node: Node, session_id: str | None) -> bool:
    return session_id is not None and node.daemon.sessions.has(session_id)
