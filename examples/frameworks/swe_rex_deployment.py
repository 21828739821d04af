"""SWE-ReX's sessions are shells of a sandbox. Needs `pip install 'sandboxd[swe-rex]'`."""

from __future__ import annotations

import asyncio

from swerex.runtime.abstract import BashAction, CreateBashSessionRequest

from sandboxd_client.integrations.swe_rex import SandboxdDeployment


async def main() -> None:
    deployment = SandboxdDeployment()
    await deployment.start()
    try:
        await deployment.runtime.create_session(CreateBashSessionRequest())
        await deployment.runtime.run_in_session(BashAction(command="export six=6"))
        done = await deployment.runtime.run_in_session(BashAction(command="echo $((six * 7))"))
        print(done.output)
    finally:
        await deployment.stop()


asyncio.run(main())
