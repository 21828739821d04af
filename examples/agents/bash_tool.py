"""A bash tool for any agent: a virtual file system, commands on its files, a saved result.

Run it against the daemon at SANDBOXD_URL or on the local socket:
    python examples/agents/bash_tool.py
"""

from __future__ import annotations

import json

from sandboxd_client.integrations import BashTool, FilesInMemory

RECEIPTS = [{"shop": "books", "amount": 45.5}, {"shop": "tea", "amount": 97}]


def main() -> None:
    # Your program decides whose sandbox it is, never the model.
    conversation = {"user_id": "ada", "thread_id": "example-bash-tool"}
    files = FilesInMemory({"/data-exports/receipts.json": json.dumps(RECEIPTS)})

    with BashTool(files=files) as bash:
        # A call that a model would make. The file is uploaded first.
        result = bash.execute_bash_command(
            "jq -r '.[] | [.shop, .amount] | @csv' receipts.json | tee report.csv"
            " | awk -F, '{sum += $2} END {print sum}'",
            ["/data-exports/receipts.json"],
            **conversation,
        )
        print("exit code", result["exit_code"], "- spent", result["stdout"].strip())

        # The sandbox still has the file that the first command created.
        saved = bash.download_sandbox_file("report.csv", "/data-exports/report.csv", **conversation)
        print(saved["status"], saved["path"], saved["size_bytes"], "bytes")
        print(files.files["/data-exports/report.csv"].decode(), end="")

        bash.cleanup_session(**conversation)


if __name__ == "__main__":
    main()
