"""A program for E2B's SDK that runs on sandboxd, unchanged: `pip install e2b`.

sandboxd e2b-gateway &
export E2B_API_URL=http://127.0.0.1:5049 E2B_SANDBOX_URL=http://127.0.0.1:5049
E2B_API_KEY=$SANDBOXD_TOKEN python examples/e2b_program.py
"""

from e2b import Sandbox

with Sandbox.create(timeout=60) as sandbox:
    sandbox.files.write("numbers.txt", "3\n1\n2\n")
    done = sandbox.commands.run("sort -n numbers.txt | tail -1")
    print("largest:", done.stdout.strip())
    for entry in sandbox.files.list("."):
        if entry.name.endswith(".txt"):
            print(entry.path, entry.size, "bytes")
