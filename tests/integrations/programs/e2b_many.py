"""Twenty conversations at once with the official E2B package; prints what each found."""

from __future__ import annotations

import asyncio
import json

from e2b import AsyncSandbox


async def converse(number):
    box = await AsyncSandbox.create(timeout=120)
    async with box:
        await box.files.write("mine.txt", f"{number}\n")
        done = await box.commands.run("sleep 0.5; cat *.txt; cat *.txt | wc -l")
        return done.stdout.split()


async def main():
    print(json.dumps(await asyncio.gather(*map(converse, range(20)))))


asyncio.run(main())
