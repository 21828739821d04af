"""Run code for agents through one service object: sandboxes by id, code, steps, history."""

import asyncio

from sandboxd_client.integrations.sandbox_service import SandboxService

CODE = """
data = [1, 2, 3, 4, 5]
debug('Starting processing', 'INFO')
__result__ = [item * 2 for item in data]
"""


async def main() -> None:
    async with SandboxService() as service:
        sandbox_id = await service.create_agent_sandbox(user_id=1)
        result = await service.execute_code(sandbox_id, CODE)
        print(result.status, result.result, result.debug_info["logs"][0]["message"])

        async for step in service.debug_code(sandbox_id, "a = 1\nb = a + 1"):
            print(step["line_number"], step["line_code"], step["state"]["variables"])

        template = await service.create_processor_template(sandbox_id, "data_processor")
        code = template.replace(
            "# Add your transformation logic here", "return {**data, 'value': data['value'] * 2}"
        )
        print((await service.execute_code(sandbox_id, code)).result["processed"])
        for execution in await service.get_execution_history(sandbox_id):
            print(execution["execution_id"], execution["status"])
        await service.cleanup_sandbox(sandbox_id)


asyncio.run(main())
