"""An MCP client that starts `sandboxd mcp` and runs a command in its sandbox.

Desktop agents do the same with a line of their settings. Needs `pip install 'sandboxd[cli,mcp]'`.
"""

from __future__ import annotations

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters


async def main() -> None:
    server = StdioServerParameters(
        command=sys.executable,  # has it, also where the command `sandboxd` is not in PATH
        args=["-m", "sandboxd", "mcp", "--user", "ada"],
        env=dict(os.environ),
    )
    async with Client(server) as client:
        print(", ".join(sorted(tool.name for tool in (await client.list_tools()).tools)))
        await client.call_tool("write_file", {"path": "numbers.txt", "content": "3\n1\n2\n"})
        done = await client.call_tool("run_command", {"command": "sort -n numbers.txt | tail -1"})
        assert done.structured_content is not None
        print("largest:", done.structured_content["stdout"].strip())


if __name__ == "__main__":
    asyncio.run(main())
