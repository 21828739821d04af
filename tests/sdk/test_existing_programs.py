"""Programs written for the earlier client run as they are, with only the import line changed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docker.daemon_process import RUNTIME, DaemonProcess, running_daemon
from tests.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUICK_START = """
from sandboxd_client import SandboxClient

# Initialize client in {mode} mode
client = SandboxClient(
    mode="{mode}"{server_url}
)

# Create session for a conversation thread
client.get_or_create_session(
    user_id="user123",
    thread_id="conversation_abc"
)

# Execute commands (files persist across commands!)
client.execute("echo '{{\\"data\\": [1,2,3]}}' > data.json")
result = client.execute("jq '.data | add' data.json")
print(result['stdout'])  # Output: 6

result = client.execute("ls -lh /workspace")
assert 'data.json' in result['stdout']

# List files in workspace
files = client.list_files()
print(f"Total files: {{files['total_files']}}")

# Cleanup when done
client.close_session()
"""

BASH_TOOL = """
from sandboxd_client import SandboxClient
from pathlib import Path
from typing import Dict, Any

class BashTool:
    def __init__(self, mode: str = "local", server_url: str = None):
        self.mode = mode
        self.server_url = server_url
        self.client = SandboxClient(mode=mode, server_url=server_url)

    def execute(
        self,
        command: str,
        user_id: str,
        thread_id: str,
        timeout: int = 30
    ) -> Dict[str, Any]:
        # Get or create session for this thread (auto-reuses existing session)
        self.client.get_or_create_session(
            user_id=user_id,
            thread_id=thread_id,
            timeout_minutes=30
        )

        # Execute command (auto-retries if session expired)
        result = self.client.execute(command, timeout=timeout, auto_retry=True)

        return {
            'exit_code': result['exit_code'],
            'stdout': result['stdout'],
            'stderr': result['stderr'],
            'execution_time_ms': result.get('execution_time_ms', 0)
        }

    def upload_file(
        self,
        file_path: str,
        user_id: str,
        thread_id: str,
        remote_name: str = None
    ) -> Dict[str, Any]:
        self.client.get_or_create_session(
            user_id=user_id,
            thread_id=thread_id
        )
        return self.client.upload_file(file_path, remote_name)

    def download_file(
        self,
        remote_name: str,
        user_id: str,
        thread_id: str,
        local_path: str = None
    ) -> str:
        self.client.get_or_create_session(
            user_id=user_id,
            thread_id=thread_id
        )
        return self.client.download_file(remote_name, local_path)

    def list_files(self, user_id: str, thread_id: str) -> Dict[str, Any]:
        self.client.get_or_create_session(
            user_id=user_id,
            thread_id=thread_id
        )
        return self.client.list_files()

    def cleanup_session(self, thread_id: str = None):
        if thread_id:
            self.client.thread_id = thread_id
        self.client.close_session()


bash_tool = BashTool(mode="remote", server_url=SERVER_URL)
Path("input.json").write_text('{"data": [1, 2]}')
bash_tool.upload_file("input.json", "user123", "conversation_abc")
result = bash_tool.execute(
    command="jq '.data | length' input.json",
    user_id="user123",
    thread_id="conversation_abc"
)

print(f"Exit code: {result['exit_code']}")
print(f"Output: {result['stdout']}")
bash_tool.execute("echo done > output.txt", "user123", "other")
path = bash_tool.download_file("input.json", "user123", "conversation_abc", "copy.json")
assert Path(path).read_text() == '{"data": [1, 2]}'
assert [f['name'] for f in bash_tool.list_files("user123", "other")['files']] == ['output.txt']
first = bash_tool.client.list_sessions(thread_id="conversation_abc")[0].session_id
bash_tool.cleanup_session("conversation_abc")
assert bash_tool.client.get_session(first).state == "closed"
assert bash_tool.client.list_sessions(thread_id="other")[0].state == "active"
bash_tool.cleanup_session("other")
"""

AUTO_UPLOAD = """
import asyncio
import os
from typing import Any, Dict, List, Optional
from sandboxd_client import SandboxClient

STORE = {"/data-exports/receipts.json": '[{"amount": 45.5}, {"amount": 67}, {"amount": 30}]'}

async def read_file(path):
    await asyncio.sleep(0.01)
    return STORE[path]

async def write_file(path, text):
    STORE[path] = text

_sandbox_client = None

def get_sandbox_client() -> SandboxClient:
    global _sandbox_client
    if _sandbox_client is None:
        _sandbox_client = SandboxClient(mode="remote", server_url=SERVER_URL)
    return _sandbox_client

async def execute_bash_command(
    command: str, file_paths: Optional[List[str]] = None, user_id=None, thread_id=None
) -> Dict[str, Any]:
    # 1. Get or create sandbox session (thread-scoped)
    sandbox_client = get_sandbox_client()
    sandbox_client.get_or_create_session(
        user_id=user_id,
        thread_id=thread_id
    )

    # 2. Auto-upload files from virtual filesystem to sandbox
    uploaded_files = []
    if file_paths:
        for path in file_paths:
            # Read from virtual filesystem (PostgreSQL)
            file_content = await read_file(path)

            # Upload to sandbox workspace
            filename = os.path.basename(path)
            sandbox_client.upload_file_from_bytes(filename, file_content.encode())
            uploaded_files.append(filename)

    # 3. Execute command in sandbox
    result = sandbox_client.execute(command)

    # 4. Add uploaded files to result
    result["uploaded_files"] = uploaded_files

    return result

async def download_sandbox_file(filename: str, save_path: str) -> Dict[str, Any]:
    sandbox_client = get_sandbox_client()
    file_data = sandbox_client.download_file(filename)

    await write_file(save_path, file_data.decode())

    return {"status": "downloaded", "path": save_path, "size_bytes": len(file_data)}

async def main():
    async def conversation(thread_id):
        return await execute_bash_command(
            command="jq '.[] | .amount' /workspace/receipts.json"
                    " | awk '{sum += $1} END {print sum}' | tee total.txt",
            file_paths=["/data-exports/receipts.json"],
            user_id="user123",
            thread_id=thread_id,
        )

    # Two conversations at once, in one process, with one client.
    results = await asyncio.gather(conversation("one"), conversation("two"))
    for result in results:
        print(result["exit_code"], result["stdout"].strip(), result["uploaded_files"])

    await execute_bash_command("echo saved > results.csv", user_id="user123", thread_id="one")
    print(await download_sandbox_file("results.csv", "/data-exports/results.csv"))
    assert STORE["/data-exports/results.csv"] == "saved\\n"
    assert os.listdir() == []

asyncio.run(main())
"""

ERROR_HANDLING = """
import logging
import sys
import types
from sandboxd_client import SandboxClient, SessionExpiredError

# Of the HTTP library that the earlier client used; nothing raises it any more.
requests = types.SimpleNamespace(HTTPError=type("HTTPError", (Exception,), {}))
logger = logging.getLogger()
logging.basicConfig(stream=sys.stdout, format="%(message)s")

def run(command):
    try:
        result = client.execute(command, auto_retry=True)
        print("exit", result['exit_code'])
    except SessionExpiredError:
        # Session expired and auto-retry failed
        logger.error("Session permanently expired")
    except requests.HTTPError as e:
        # HTTP error (remote mode only)
        logger.error(f"HTTP error: {e.response.status_code}")
    except ValueError as e:
        # Command validation failed
        logger.error(f"Invalid command: {e}")
    except Exception as e:
        # Other errors
        logger.error(f"Execution failed: {e}")

client = SandboxClient(mode="remote", server_url=SERVER_URL)
run("ls")
client.get_or_create_session(user_id="user123", thread_id="errors")
run("ls")
run("curl https://example.com")
run("grep nothing /etc/hostname")
client.close_session()
"""

CONTEXT_MANAGER = """
from sandboxd_client import SandboxClient

with SandboxClient(mode="remote", server_url=SERVER_URL) as client:
    client.get_or_create_session(user_id="...", thread_id="...")
    print(client.execute("ls -lh")['exit_code'])
    session_id = client.session_id
    # Auto-cleanup on exit
print(SandboxClient(mode="remote", server_url=SERVER_URL).get_session(session_id)["status"])
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    """As it is by default: with its strict policy, and on TCP."""
    settings = {"SANDBOXD_COMMAND_POLICY": "strict", "HOST": "127.0.0.1", "PORT": str(free_port())}
    async with running_daemon(POOL_SIZE="2", **settings) as daemon:
        yield daemon


def run(program: str, directory: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        env={**os.environ, **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


async def test_quick_start_in_local_mode(short_dir: Path) -> None:
    """No daemon runs, and none is left behind."""
    program = QUICK_START.format(mode="local", server_url="")

    printed = run(
        program,
        short_dir,
        SANDBOXD_STATE_DIR=str(short_dir / "state"),
        SANDBOXD_RUN_DIR=str(short_dir / "run"),
        SANDBOXD_GUEST_RUNTIME=str(RUNTIME),
        MAX_WORKSPACE_SIZE_MB="16",
        POOL_SIZE="1",
    )

    assert printed == ["6", "", "Total files: 1"]


async def test_quick_start_in_remote_mode(daemon: DaemonProcess, tmp_path: Path) -> None:
    """The URL is written as it was for HTTP."""
    url = f'server_url="http://localhost:{daemon.environment["PORT"]}"'
    program = QUICK_START.format(mode="remote", server_url=f",\n    {url}")

    assert run(program, tmp_path) == ["6", "", "Total files: 1"]


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (BASH_TOOL, ["Exit code: 0", "Output: 2", ""]),
        (
            AUTO_UPLOAD,
            [
                "0 142.5 ['receipts.json']",
                "0 142.5 ['receipts.json']",
                "{'status': 'downloaded', 'path': '/data-exports/results.csv', 'size_bytes': 6}",
            ],
        ),
        (CONTEXT_MANAGER, ["0", "closed"]),
    ],
    ids=["bash-tool", "auto-upload", "context-manager"],
)
async def test_program_runs(
    program: str, printed: list[str], daemon: DaemonProcess, tmp_path: Path
) -> None:
    """And says what it said."""
    url = f"SERVER_URL = 'unix:{daemon.socket}'\n"

    assert run(url + program, tmp_path) == printed


async def test_errors_are_handled_where_they_were(daemon: DaemonProcess, tmp_path: Path) -> None:
    """A refused command and a missing session are ValueErrors; a failing command is a result."""
    url = f"SERVER_URL = 'unix:{daemon.socket}'\n"

    no_session, fine, refused, failed = run(url + ERROR_HANDLING, tmp_path)

    assert no_session.startswith("Invalid command: No active session.")
    assert (fine, failed) == ("exit 0", "exit 1")
    assert refused.startswith("Invalid command:")
    assert "curl" in refused
