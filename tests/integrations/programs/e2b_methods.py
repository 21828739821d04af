"""Every public method of the official E2B package, one by one, against a gateway.

Prints for each whether it works as E2B documents it, or is refused. The environment has the
gateway's address and the key, as for any program that uses E2B.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
import traceback
import urllib.request

from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    FileNotFoundException,
    InvalidArgumentException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b.sandbox.filesystem.filesystem import FileType
from e2b.sandbox.filesystem.watch_handle import FilesystemEventType
from e2b.sandbox_sync.commands.command import Commands
from e2b.sandbox_sync.commands.command_handle import CommandHandle
from e2b.sandbox_sync.commands.pty import Pty
from e2b.sandbox_sync.filesystem.filesystem import Filesystem
from e2b.sandbox_sync.filesystem.watch_handle import WatchHandle

CHECKS = {}
REFUSED = {}
CLASSES = {
    "Sandbox": Sandbox,
    "commands": Commands,
    "CommandHandle": CommandHandle,
    "pty": Pty,
    "files": Filesystem,
    "WatchHandle": WatchHandle,
}


def works(*names):
    """The check of methods that work."""

    def keep(check):
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return keep


def refused(*names):
    """The check of a method that is not offered: it must raise, whatever it is given."""

    def keep(check):
        REFUSED.update(dict.fromkeys(names, check))
        return check

    return keep


def raises(kind, call):
    try:
        answer = call()
    except kind as error:
        return error
    raise AssertionError(f"answered {answer!r} instead of {kind.__name__}")


def until(condition):
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


# --- Sandbox ---


@works("Sandbox.create", "Sandbox.kill", "Sandbox.is_running")
def life(_):
    with Sandbox.create(timeout=60, envs={"GREETING": "hello"}) as own:
        assert own.is_running()
        assert own.commands.run("echo $GREETING").stdout == "hello\n"
    assert not own.is_running()
    assert not own.kill()
    assert not Sandbox.kill(own.sandbox_id)
    raises(SandboxException, lambda: own.commands.run("true"))
    raises(SandboxException, lambda: Sandbox.create("no-such-template"))
    raises(AuthenticationException, lambda: Sandbox.create(api_key="sbx_wrong"))


@works("Sandbox.connect")
def connect(box):
    box.files.write("kept.txt", "kept")
    again = Sandbox.connect(box.sandbox_id)
    assert again.files.read("kept.txt") == "kept"
    raises(SandboxNotFoundException, lambda: Sandbox.connect("ses_none"))


@works("Sandbox.set_timeout", "Sandbox.get_info")
def timeout(box):
    box.set_timeout(1000)
    info = box.get_info()
    left = info.end_at.timestamp() - time.time()
    assert 900 < left < 1100, left
    assert info.sandbox_id == box.sandbox_id
    assert info.state.value == "running"
    assert info.metadata == {"purpose": "tests"}
    assert info.memory_mb > 0
    assert info.cpu_count >= 1
    short = Sandbox.create(timeout=2)
    until(lambda: not short.is_running())
    raises(SandboxNotFoundException, lambda: Sandbox.get_info(short.sandbox_id))


@works("Sandbox.list")
def listing(box):
    def ids(**options):
        pages = Sandbox.list(**options)
        found = []
        while pages.has_next:
            found += [info.sandbox_id for info in pages.next_items()]
        return found

    others = [Sandbox.create(metadata={"page": str(number)}) for number in range(3)]
    try:
        query = SandboxQuery(metadata={"purpose": "tests"})
        assert ids(query=query) == [box.sandbox_id]
        newest_first = [one.sandbox_id for one in reversed(others)]
        assert ids(limit=1)[:3] == newest_first
        assert set(newest_first) < set(ids())
        assert ids(query=SandboxQuery(metadata={"page": "none"})) == []
    finally:
        for one in others:
            assert one.kill()


@works("Sandbox.get_metrics")
def metrics(box):
    (sample,) = box.get_metrics()
    assert 0 < sample.mem_used <= sample.mem_total
    assert sample.disk_used < sample.disk_total
    assert sample.cpu_used_pct >= 0


@works("Sandbox.get_host", "Sandbox.download_url", "Sandbox.upload_url")
def addresses(box):
    """They are made in the client; a signed one is taken under the name of the sandbox's host."""
    assert box.get_host(80).startswith(f"80-{box.sandbox_id}.")
    box.files.write("signed.txt", "signed")
    with opened(box, box.download_url("signed.txt", use_signature_expiration=60)) as answer:
        assert answer.read() == b"signed"
    with opened(box, box.upload_url("up.txt"), b"up") as answer:
        assert answer.status == 200
    assert box.files.read("up.txt") == "up"
    forged = box.download_url("signed.txt").replace("signed.txt", "up.txt")
    assert raises(urllib.error.HTTPError, lambda: opened(box, forged)).code == 401
    late = box.download_url("signed.txt", use_signature_expiration=-5)
    assert raises(urllib.error.HTTPError, lambda: opened(box, late)).code == 401


def opened(box, url, data=None):
    headers = {"Host": box.get_host(49983), "Content-Type": "application/octet-stream"}
    return urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30)


@works("Sandbox.pause", "Sandbox.beta_pause")
def pause(_):
    """Its files stay, and `connect` resumes it; processes are ended only if that was asked for."""
    own = Sandbox.create(timeout=60, envs={"A": "1"}, metadata={"paused": "yes"})
    own.files.write("kept.txt", "kept")
    assert own.pause()
    assert not own.pause()
    assert not own.is_running()
    raises(SandboxException, lambda: own.commands.run("true"))
    assert Sandbox.get_info(own.sandbox_id).state.value == "paused"
    query = SandboxQuery(metadata={"paused": "yes"}, state=[SandboxState.PAUSED])
    assert [one.sandbox_id for one in Sandbox.list(query=query).next_items()] == [own.sandbox_id]
    again = Sandbox.connect(own.sandbox_id, timeout=100)
    assert again.commands.run("cat kept.txt; echo $A").stdout == "kept1\n"
    left = again.get_info().end_at.timestamp() - time.time()
    assert 50 < left < 150, left
    assert again.get_info().metadata == {"paused": "yes"}
    again.commands.run("sleep 600", background=True)
    assert "filesystem" in str(raises(SandboxException, again.pause))
    assert again.is_running()
    assert again.beta_pause(mode="filesystem")
    assert Sandbox.kill(own.sandbox_id)
    raises(SandboxNotFoundException, lambda: Sandbox.connect(own.sandbox_id))
    raises(SandboxNotFoundException, lambda: Sandbox.pause(own.sandbox_id))


@works("Sandbox.fork")
def fork(_):
    with Sandbox.create(timeout=60) as own:
        own.files.write("a.txt", "before")
        first, second = own.fork(timeout=60, count=2)
        first.files.write("a.txt", "changed")
        assert (own.files.read("a.txt"), second.files.read("a.txt")) == ("before", "before")
        assert first.files.read("a.txt") == "changed"
        own.commands.run("sleep 600", background=True)
        assert "filesystem" in str(raises(SandboxException, own.fork))
        assert first.kill()
        assert second.kill()
    raises(SandboxNotFoundException, own.fork)


@works("Sandbox.create_snapshot", "Sandbox.list_snapshots", "Sandbox.delete_snapshot")
def snapshots(_):
    """They outlive the sandbox, and start others."""
    with Sandbox.create(timeout=60) as own:
        own.files.write("a.txt", "saved")
        named, plain = own.create_snapshot(name="first"), own.create_snapshot()
        own.files.write("a.txt", "later")
        found = own.list_snapshots().next_items()
        assert {one.snapshot_id for one in found} == {named.snapshot_id, plain.snapshot_id}
        assert named.names == ["first"]
        assert plain.names == []
        own.commands.run("sleep 600", background=True)
        raises(SandboxException, own.create_snapshot)
        live = own.create_snapshot(mode="filesystem")
    with Sandbox.create(named.snapshot_id, timeout=60, metadata={"from": "snapshot"}) as other:
        assert other.files.read("a.txt") == "saved"
        assert other.get_info().metadata == {"from": "snapshot"}
        assert other.get_info().template_id == named.snapshot_id
    assert named.snapshot_id not in [one.sandbox_id for one in Sandbox.list().next_items()]
    raises(SandboxException, lambda: Sandbox.create(named.snapshot_id, envs={"A": "1"}))
    raises(SandboxException, lambda: Sandbox.connect(named.snapshot_id))
    for one in (named, plain, live):
        assert Sandbox.delete_snapshot(one.snapshot_id)
    assert not Sandbox.delete_snapshot(named.snapshot_id)
    assert not Sandbox.delete_snapshot("base")
    raises(SandboxException, lambda: Sandbox.create(named.snapshot_id))


refused("Sandbox.update_network")(lambda box: box.update_network({"deny_out": ["0.0.0.0/0"]}))
refused("Sandbox.get_mcp_url")(lambda box: Sandbox.create(mcp={"x": {}}))
refused("Sandbox.get_mcp_token")(lambda box: Sandbox.create(mcp={"x": {}}))


# --- commands ---


@works("commands.run", "CommandHandle.wait")
def run(box):
    seen = []
    done = box.commands.run("echo out; echo err >&2", on_stdout=seen.append)
    assert (done.stdout, done.stderr, done.exit_code, done.error) == ("out\n", "err\n", 0, None)
    assert seen == ["out\n"]
    failed = raises(CommandExitException, lambda: box.commands.run("echo no >&2; exit 3"))
    assert (failed.exit_code, failed.stderr) == (3, "no\n")
    killed = raises(CommandExitException, lambda: box.commands.run("kill -9 $$"))
    assert killed.exit_code == -1
    raises(TimeoutException, lambda: box.commands.run("sleep 60", timeout=1))
    assert box.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert box.commands.run("echo $A", envs={"A": "1"}).stdout == "1\n"
    assert box.commands.run("cat").stdout == ""
    raises(InvalidArgumentException, lambda: box.commands.run("true", cwd="/none"))
    raises(InvalidArgumentException, lambda: box.commands.run("true", user="root"))
    text = box.commands.run("seq 300000").stdout
    assert text.endswith("\n300000\n")
    assert len(text.splitlines()) == 300000


@works(
    "CommandHandle.pid",
    "CommandHandle.kill",
    "CommandHandle.disconnect",
    "commands.kill",
    "commands.list",
    "commands.connect",
)
def background(box):
    handle = box.commands.run("for i in $(seq 600); do echo $i; sleep 0.2; done", background=True)
    (found,) = [one for one in box.commands.list() if one.pid == handle.pid]
    assert found.cmd == "/bin/bash"
    assert found.args[:2] == ["-l", "-c"]
    handle.disconnect()
    again = box.commands.connect(handle.pid)
    first, _, _ = next(iter(again))
    assert first.strip().isdecimal()
    assert again.kill()
    raises(CommandExitException, again.wait)
    assert not box.commands.kill(handle.pid)
    other = box.commands.run("sleep 600", background=True)
    assert box.commands.kill(other.pid)
    assert raises(CommandExitException, other.wait).exit_code == -1
    until(lambda: other.pid not in [one.pid for one in box.commands.list()])
    raises(SandboxException, lambda: box.commands.connect(other.pid))


@works(
    "commands.send_stdin",
    "commands.close_stdin",
    "commands.stream_input",
    "CommandHandle.send_stdin",
    "CommandHandle.close_stdin",
)
def stdin(box):
    handle = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "one\n")
    handle.send_stdin("two\n")
    box.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "one\ntwo\n"
    other = box.commands.run("wc -c", background=True, stdin=True)
    box.commands.stream_input(other.pid, (b"x" * 1000 for _ in range(50)))
    other.close_stdin()
    assert other.wait().stdout.strip() == "50000"


# --- pty ---


@works("pty.create", "pty.send_stdin", "pty.resize", "pty.kill", "pty.connect", "pty.stream_input")
def terminal(box):
    from e2b import PtySize

    handle = box.pty.create(PtySize(rows=20, cols=70), timeout=60)
    box.pty.resize(handle.pid, PtySize(rows=30, cols=90))
    box.pty.send_stdin(handle.pid, b"stty size; exit\n")
    data = bytearray()
    handle.wait(on_pty=data.extend)
    assert b"30 90" in data, bytes(data)
    other = box.pty.create(PtySize(rows=20, cols=70), timeout=60)
    again = box.pty.connect(other.pid)
    box.pty.stream_input(other.pid, [b"echo $((6*7))\n"])
    read = bytearray()
    for _, _, piece in again:
        read.extend(piece or b"")
        if b"42" in read:
            break
    assert box.pty.kill(other.pid)
    until(lambda: not box.pty.kill(other.pid))


# --- files ---


@works("files.read", "files.write", "files.write_files")
def transfers(box):
    raw = bytes(range(256)) * 1000
    info = box.files.write("d/raw.bin", raw)
    assert (info.name, info.path) == ("raw.bin", "/workspace/d/raw.bin")
    assert bytes(box.files.read("d/raw.bin", format="bytes")) == raw
    assert b"".join(box.files.read("d/raw.bin", format="stream")) == raw
    box.files.write("text.txt", "häh")
    assert box.files.read("text.txt") == "häh"
    box.files.write("text.txt", io.BytesIO(b"streamed"))
    assert box.files.read("text.txt") == "streamed"
    box.files.write("packed.txt", "x" * 100_000, gzip=True)
    assert box.files.read("packed.txt", gzip=True) == "x" * 100_000
    written = box.files.write_files(
        [{"path": "m/1.txt", "data": "1"}, {"path": "/tmp/2.txt", "data": b"2"}]
    )
    paths = [one.path for one in written]
    assert paths == ["/workspace/m/1.txt", "/tmp/2.txt"], paths
    assert box.files.read("/tmp/2.txt") == "2"
    raises(FileNotFoundException, lambda: box.files.read("none"))
    raises(SandboxException, lambda: box.files.read("d"))
    raises(SandboxException, lambda: box.files.write("/etc/x", "x"))
    raises(InvalidArgumentException, lambda: box.files.read("text.txt", user="root"))
    raises(SandboxException, lambda: box.files.write("text.txt", "x", metadata={"a": "b"}))


@works(
    "files.list",
    "files.exists",
    "files.get_info",
    "files.make_dir",
    "files.rename",
    "files.remove",
)
def entries(box):
    assert box.files.make_dir("e/f")
    assert not box.files.make_dir("e/f")
    assert not box.files.make_dir("/workspace")
    assert box.files.exists("/workspace")
    assert box.files.get_info("/").type == FileType.DIR
    box.files.write("e/f/a.txt", "12345")
    assert box.files.exists("e/f/a.txt")
    assert not box.files.exists("e/none")
    assert not box.files.exists("e/f/a.txt/none")
    info = box.files.get_info("e/f/a.txt")
    assert (info.size, info.type, info.name) == (5, FileType.FILE, "a.txt")
    assert abs(info.modified_time.timestamp() - time.time()) < 300
    assert [one.path for one in box.files.list("e")] == ["/workspace/e/f"]
    assert [one.name for one in box.files.list("e", depth=2)] == ["f", "a.txt"]
    box.commands.run("ln -s a.txt e/f/link")
    link = box.files.get_info("e/f/link")
    assert (link.type, link.symlink_target) == (FileType.SYMLINK, "a.txt")
    box.files.write("e/old.txt", "old")
    assert box.files.rename("e/f/a.txt", "e/old.txt").path == "/workspace/e/old.txt"
    assert box.files.read("e/old.txt") == "12345"
    raises(SandboxException, lambda: box.files.rename("e/none", "e/other"))
    box.files.remove("e")
    assert not box.files.exists("e")
    box.files.remove("e")
    raises(SandboxException, lambda: box.files.list("e"))


@works("files.watch_dir", "WatchHandle.get_new_events", "WatchHandle.stop")
def watch(box):
    box.files.make_dir("w/sub")
    handle = box.files.watch_dir("w", recursive=True)
    box.files.write("w/sub/new.txt", "new")
    events = []

    def seen():
        events.extend(handle.get_new_events())
        return [one for one in events if one.name == "sub/new.txt"]

    assert until(seen)[0].type == FilesystemEventType.CREATE
    box.files.remove("w/sub/new.txt")
    until(lambda: [one for one in seen() if one.type == FilesystemEventType.REMOVE])
    handle.stop()
    raises(SandboxException, handle.get_new_events)
    raises(SandboxException, lambda: box.files.watch_dir("none"))


# --- the async package does the same over the same wire ---


async def awaited():
    async with await AsyncSandbox.create(timeout=60) as box:
        done = await box.commands.run("echo hello")
        assert done.stdout == "hello\n"
        changed = asyncio.Event()
        watcher = await box.files.watch_dir(".", on_event=lambda event: changed.set())
        await box.files.write("x.txt", "x")
        await asyncio.wait_for(changed.wait(), 60)
        await watcher.stop()
        assert await box.files.read("x.txt") == "x"
        handle = await box.commands.run("sleep 600", background=True)
        assert await handle.kill()


def public_methods():
    return {
        f"{part}.{name}"
        for part, kind in CLASSES.items()
        for name in dir(kind)
        if not name.startswith("_") and (callable(getattr(kind, name)) or part == "CommandHandle")
    }


def main():
    box = Sandbox.create(metadata={"purpose": "tests"}, timeout=600)
    answers = {}
    for name, check in REFUSED.items():
        try:
            answers[name] = f"answered {check(box)!r}"
        except SandboxException as error:
            answers[name] = "not offered" if "not offered" in str(error) else str(error)
    done = {}
    for name, check in CHECKS.items():
        if check not in done:
            try:
                check(box)
                done[check] = "works"
            except Exception:
                lines = traceback.format_exc().splitlines()
                own = [line for line in lines if "e2b_methods" in line]
                done[check] = f"{own[-1].strip()}: {lines[-1]}"
        answers[name] = done[check]
    try:
        asyncio.run(awaited())
        answers["AsyncSandbox"] = "works"
    except Exception:
        answers["AsyncSandbox"] = traceback.format_exc()
    box.kill()
    print(json.dumps({"answers": answers, "methods": sorted(public_methods())}))


if __name__ == "__main__":
    sys.exit(main())
