"""The OpenAI Agents SDK on sandboxd without a gateway; prints what each scenario found."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path

from agents import RunConfig, Runner
from agents.sandbox import (
    LocalSnapshotSpec,
    Manifest,
    SandboxAgent,
    SandboxPathGrant,
    SandboxRunConfig,
    User,
    errors,
)
from agents.sandbox.entries import File
from agents.sandbox.snapshot import NoopSnapshotSpec

from sandboxd_client import AsyncSandbox, AsyncSandboxClient
from sandboxd_client.integrations.openai_agents import SandboxdClient, SandboxdOptions
from tests.vendors.programs.openai_script import Scripted

CLIENT = SandboxdClient()
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def run(model, client=CLIENT, options=None, **config):
    agent = SandboxAgent(name="agent", model=model)
    config = {"snapshot": NoopSnapshotSpec(), **config}
    sandbox = SandboxRunConfig(client=client, options=options, **config)
    return await Runner.run(agent, "Please.", run_config=RunConfig(sandbox=sandbox))


async def started(options=None, **arguments):
    session = await CLIENT.create(options=options or SandboxdOptions(), **arguments)
    await session.start()
    return session


async def ended(session):
    await session.aclose()
    await CLIENT.delete(session)


async def raised(kind, call):
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


async def open_sessions(user="sandbox"):
    async with AsyncSandboxClient() as client:
        return [
            info.state
            for info in await client.list_sessions(user_id=user)
            if info.state in ("active", "parked")
        ]


async def tools():
    """The tools of the framework: a patch, commands, a process with a terminal."""
    model = Scripted(
        ("apply_patch", "*** Begin Patch\n*** Add File: d/a.txt\n+one\n+two\n*** End Patch\n"),
        (
            "apply_patch",
            "*** Begin Patch\n*** Update File: d/a.txt\n@@\n-two\n+three\n*** End Patch\n",
        ),
        ("exec_command", {"cmd": "cat d/a.txt notes.txt; echo $GREETING; exit 3"}),
        ("exec_command", {"cmd": "no-such-program"}),
        (
            "exec_command",
            {"cmd": "read x; echo got $x; sleep 600", "tty": True, "yield_time_ms": 250},
        ),
        (
            "write_stdin",
            lambda told: {"session_id": number(told), "chars": "hello\n", "yield_time_ms": 3000},
        ),
        ("write_stdin", {"session_id": 1, "chars": ""}),
    )
    manifest = Manifest(
        entries={"notes.txt": File(content=b"noted\n")}, environment={"value": {"GREETING": "hi"}}
    )
    await run(model, options=SandboxdOptions(user_id="tools"), manifest=manifest)
    seeing = Scripted(("view_image", {"path": "p.png"}), ("exec_command", {"cmd": "true"}))
    picture = Manifest(entries={"p.png": File(content=PICTURE)})
    await run(seeing, options=SandboxdOptions(user_id="tools"), manifest=picture)
    left = await open_sessions("tools")
    return {"answers": model.answers, "seen": str(seeing.answers[0]), "left": left}


def number(told):
    return int(told.split("session ID ")[1].split()[0])


async def conversation():
    """The sandbox of a conversation stays, and what a manifest wrote is not written again."""
    options = SandboxdOptions(user_id="talk", thread_id="1")
    manifest = Manifest(entries={"notes.txt": File(content=b"first\n")})
    await run(
        Scripted(("exec_command", {"cmd": "echo changed > notes.txt"})),
        options=options,
        manifest=manifest,
    )
    model = Scripted(("exec_command", {"cmd": "cat notes.txt"}))
    await run(model, options=options, manifest=manifest)
    left = await open_sessions("talk")
    async with await AsyncSandbox.open("talk", "1") as sandbox:
        await sandbox.kill()
    return {"answer": model.answers[-1], "left": left}


async def snapshot():
    """A run's files come back in another sandbox, from the snapshot of its state."""
    options = SandboxdOptions(user_id="snapshot")
    with tempfile.TemporaryDirectory() as directory:
        session = await started(options, snapshot=LocalSnapshotSpec(base_path=Path(directory)))
        made = (
            "mkdir d skipped; echo kept > d/a.txt; chmod 700 d/a.txt; ln -s a.txt d/link; "
            "ln -s /usr/bin/env e; touch 'odd name'; echo o > outputs/o; "
            "echo s > skipped/s; ln skipped/s hard"
        )
        session.register_persist_workspace_skip_path("skipped")
        assert (await session.exec(made)).ok()
        await ended(session)
        payload = json.loads(json.dumps(CLIENT.serialize_session_state(session.state)))
        again = await CLIENT.resume(CLIENT.deserialize_session_state(payload))
        await again.start()
        is_other = again.state.sandboxd_session_id != payload["sandboxd_session_id"]
        found = await again.exec(
            "cat d/link; stat -c %a d/a.txt; readlink e; cat outputs/o hard; ls"
        )
        await ended(again)
    return {
        "found": found.stdout.decode(),
        "is_other": is_other,
        "left": await open_sessions("snapshot"),
    }


async def pause():
    """A paused sandbox is parked; its state finds it again, with its files."""
    session = await started(SandboxdOptions(user_id="pause", pause_on_exit=True))
    await session.write(Path("a.txt"), io.BytesIO(b"kept"))
    await ended(session)
    paused = await open_sessions("pause")
    again = await CLIENT.resume(session.state)
    await again.start()
    found = (await again.read(Path("a.txt"))).read().decode()
    state = again.state
    await ended(again)
    last = await CLIENT.resume(
        state.model_copy(update={"options": SandboxdOptions(user_id="pause")})
    )
    await CLIENT.delete(last)
    return {"paused": paused, "found": found, "left": await open_sessions("pause")}


async def mistakes():
    """Errors have the classes that the framework documents; nothing is left behind."""
    manifest = Manifest(extra_path_grants=(SandboxPathGrant(path="/tmp/ro", read_only=True),))
    session = await started(SandboxdOptions(user_id="mistakes"), manifest=manifest)
    outside = Path("/etc/passwd")
    link = await session.exec(
        "ln -s /etc/passwd link; mkdir d; touch d/x; mkfifo pipe; mkdir -p /tmp/ro"
    )
    assert link.ok(), link.stderr
    seen = {
        "missing": (
            await raised(errors.WorkspaceReadNotFoundError, session.read(Path("no.txt")))
        ).code,
        "directory": (await raised(errors.WorkspaceArchiveReadError, session.read(Path("d")))).code,
        "outside": (await raised(errors.InvalidManifestPathError, session.read(outside))).code,
        "above": (
            await raised(errors.InvalidManifestPathError, session.read(Path("../etc/passwd")))
        ).code,
        "link": (await raised(errors.InvalidManifestPathError, session.read(Path("link")))).code,
        "write": (
            await raised(
                errors.WorkspaceArchiveWriteError, session.write(Path("d"), io.BytesIO(b""))
            )
        ).code,
        "granted": (
            await raised(
                errors.WorkspaceArchiveWriteError, session.write(Path("/tmp/ro/x"), io.BytesIO(b""))
            )
        ).code,
        "type": (
            await raised(errors.WorkspaceWriteTypeError, session.write(Path("n"), Numbers()))
        ).code,
        "list": (await raised(errors.ExecNonZeroError, session.ls("none"))).code,
        "remove": (await raised(errors.ExecNonZeroError, session.rm("d"))).code,
        "slow": (
            await raised(errors.ExecTimeoutError, session.exec("sleep 600", timeout=0.5))
        ).code,
        "user": (await raised(errors.ConfigurationError, session.exec("id", user="root"))).code,
        "port": (
            await raised(errors.ExposedPortUnavailableError, session.resolve_exposed_port(80))
        ).code,
        "users": (
            await raised(
                errors.ConfigurationError, CLIENT.create(manifest=Manifest(users=[User(name="x")]))
            )
        ).code,
        "environment": (
            await raised(
                errors.WorkspaceStartError,
                started(SandboxdOptions(user_id="mistakes", environment="none")),
            )
        ).code,
        "program": (await session.exec("no-such-program", shell=False)).exit_code,
        "entries": sorted(f"{entry.path} {entry.kind.value}" for entry in await session.ls(".")),
    }
    await session.rm("d", recursive=True)
    await session.mv("link", "moved")
    assert not await session.same_file("moved", "pipe")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("inner/x.txt")
        member.size = 2
        tar.addfile(member, io.BytesIO(b"in"))
    await session.extract("unpacked/a.tar", io.BytesIO(archive.getvalue()))
    assert (await session.read(Path("unpacked/inner/x.txt"))).read() == b"in"
    payload = io.BytesIO(b"x" * 3_000_000)
    await session.write(Path("big"), payload)
    assert await session.read_bounded(Path("big"), max_bytes=10) == b"x" * 10
    long = await session.exec("head -c 12000000 /dev/zero | tr '\\0' y")
    seen["marked"] = len(long.stdout) < 11_000_000 and b"bytes left out" in long.stdout
    await AsyncSandbox.kill(session.state.sandboxd_session_id)
    seen["lost"] = (await raised(errors.ExecTransportError, session.exec("true"))).code
    seen["running"] = await session.running()
    await ended(session)
    failing = Manifest(entries={"a": File(content=b"x"), "a/b": File(content=b"y")})
    seen["manifest"] = type(
        await raised(Exception, started(SandboxdOptions(user_id="mistakes"), manifest=failing))
    ).__name__
    broken = run(Scripted(), options=SandboxdOptions(user_id="mistakes"))  # it has no answer
    await raised(IndexError, broken)
    opening = asyncio.ensure_future(started(SandboxdOptions(user_id="mistakes")))
    await asyncio.sleep(0)
    opening.cancel()
    await raised(asyncio.CancelledError, opening)
    async with asyncio.timeout(60):
        while await open_sessions("mistakes"):
            await asyncio.sleep(0.1)
    return seen


class Numbers(io.IOBase):
    def read(self):
        return 7


async def port():
    """A port of the manifest is reached through the origin of a preview."""
    session = await started(SandboxdOptions(user_id="port", exposed_ports=(8000,)))
    await session.exec("echo 42 > index.html; (python3 -m http.server 8000 >/dev/null 2>&1 &)")
    for _ in range(200):
        if (await session.exec("echo > /dev/tcp/127.0.0.1/8000", shell=["bash", "-c"])).ok():
            break
        await asyncio.sleep(0.1)
    endpoint = await session.resolve_exposed_port(8000)
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    host = f"{endpoint.host}:{endpoint.port}"
    writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    await ended(session)
    return {"answer": answer.decode(), "url": endpoint.url_for("http")}


print(json.dumps(asyncio.run(globals()[sys.argv[1]]())))
