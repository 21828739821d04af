"""Serve many conversations at once with asyncio: each has a sandbox, all share a connection."""

import asyncio

from sandboxd_client import AsyncSandbox


async def answer(conversation: str, question: str) -> str:
    async with await AsyncSandbox.open("ada", conversation, timeout_minutes=5) as sandbox:
        await sandbox.files.write("question.txt", question)
        result = await sandbox.commands.run("wc -w < question.txt", check=True)
        await sandbox.kill()
        return f"{conversation}: {result.stdout.strip()} words"


async def main() -> None:
    questions = {"one": "how are you", "two": "what is the time", "three": "hello"}
    for line in await asyncio.gather(*(answer(*pair) for pair in questions.items())):
        print(line)


asyncio.run(main())
