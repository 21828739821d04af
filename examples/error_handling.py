"""Errors are typed exceptions; how a command ends is a result."""

from sandboxd_client import (
    PolicyError,
    SandboxClient,
    SandboxError,
    SessionClosedError,
)

with SandboxClient() as client:
    client.get_or_create_session(user_id="ada", thread_id="errors")

    result = client.execute("python3 -c 'import time; time.sleep(60)'", timeout=0.5)
    print(result.exit_code, result.reason, "-", result.hint)

    try:
        client.execute("curl https://example.com")
    except PolicyError as error:  # also a ValueError
        print(error.reason, "-", error)

    client.sandbox.kill()
    try:
        client.execute("ls")
    except SessionClosedError as error:
        print(error.reason, "-", error)
    except SandboxError as error:
        print("something else:", error.reason)
