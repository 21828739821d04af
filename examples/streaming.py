"""Follow a command while it runs. The loop survives lost connections and restarts."""

from sandboxd_client import OutputChunk, Sandbox

PROGRAM = "python3 -c 'import time; [(print(i, flush=True), time.sleep(0.05)) for i in range(5)]'"

with Sandbox.create() as sandbox:
    command = sandbox.commands.run(PROGRAM, background=True, timeout=60)
    with command.stream() as events:
        for event in events:
            if isinstance(event, OutputChunk):
                print(event.stream, event.offset, event.text, end="")
    assert events.result is not None
    print("exit code", events.result.exit_code)
