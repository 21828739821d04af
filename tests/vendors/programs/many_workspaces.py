"""Twenty conversations at once through a framework; prints what each found in its workspace."""

from __future__ import annotations

import asyncio
import json
import sys

from sandboxd_client import AsyncSandbox


async def pydantic_ai(number):
    from pydantic_ai.workspaces import Workspace

    from sandboxd_client.integrations.pydantic_ai import SandboxdWorkspace

    backend = SandboxdWorkspace()
    workspace = Workspace(backend)
    await workspace.write_text(f"mine-{number}.txt", f"{number}\n")
    done = await workspace.run("cat mine-*", shell=True)
    await backend.kill()
    return done.stdout


async def google_adk(number):
    from google.adk.tools.environment import EnvironmentToolset

    from sandboxd_client.integrations.google_adk import SandboxdEnvironment

    sandbox = await AsyncSandbox.open("adk", f"thread {number}")
    environment = SandboxdEnvironment(sandbox)
    toolset = EnvironmentToolset(environment=environment)
    tools = {tool.name: tool for tool in await toolset.get_tools()}
    write, run = tools["WriteFile"], tools["Execute"]
    await write.run_async(
        args={"path": f"mine-{number}.txt", "content": f"{number}\n"}, tool_context=None
    )
    done = await run.run_async(args={"command": "cat mine-*"}, tool_context=None)
    await toolset.close()
    await sandbox.kill()
    return done["stdout"]


async def strands(number):
    from strands import Agent

    from sandboxd_client.integrations.strands import SandboxdSandbox

    own = SandboxdSandbox(user_id="strands", thread_id=f"thread {number}")
    agent = Agent(sandbox=own)
    await agent.sandbox.write_text(f"mine-{number}.txt", f"{number}\n")
    code = "import glob; print(*(open(f).read() for f in glob.glob('mine-*')), end='')"
    done = await agent.sandbox.execute_code(code, "python")
    failed = await agent.sandbox.execute("cat mine-*; echo no >&2; exit 3")
    assert (failed.stdout, failed.stderr, failed.exit_code) == (done.stdout, "no\n", 3)
    names = [info.name for info in await agent.sandbox.list_files(".")]
    assert f"mine-{number}.txt" in names
    await own.aclose()
    async with await AsyncSandbox.open("strands", f"thread {number}") as sandbox:
        assert sandbox.info.status == "attached"
        await sandbox.kill()
    return done.stdout


async def ag2(number):
    from ag2.tools.sandbox.adapter import CodeAdapter, ShellAdapter

    from sandboxd_client.integrations.ag2 import SandboxdSandbox

    async with SandboxdSandbox() as sandbox:
        shell, code = ShellAdapter(sandbox), CodeAdapter(sandbox)
        await shell.run(f"echo {number} > mine-{number}.txt")
        done = await code.run(
            "import glob; print(*(open(f).read() for f in glob.glob('mine-*')), end='')", "python"
        )
        assert done.exit_code == 0, done.output
        return f"{done.output}\n"


async def mini_swe_agent(number):
    return await asyncio.to_thread(swe_agent, number)


def swe_agent(number):
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.models.test_models import DeterministicModel, make_output

    from sandboxd_client.integrations.mini_swe_agent import SandboxdEnvironment

    words = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    outputs = [
        make_output("write", [{"command": f"echo {number} > mine-{number}.txt"}], cost=0.001),
        make_output("submit", [{"command": f"echo {words}; cat mine-*"}], cost=0.001),
    ]
    with SandboxdEnvironment() as environment:
        agent = DefaultAgent(
            DeterministicModel(outputs=outputs),
            environment,
            system_template="Do it.",
            instance_template="{{task}}",
        )
        return agent.run("Please.")["submission"]


async def autogen(number):
    from autogen_agentchat.agents import CodeExecutorAgent
    from autogen_agentchat.messages import TextMessage
    from autogen_core import CancellationToken

    from sandboxd_client.integrations.autogen import SandboxdCodeExecutor

    async with SandboxdCodeExecutor() as executor:
        agent = CodeExecutorAgent(
            "runner", code_executor=executor, supported_languages=["bash", "python"]
        )
        blocks = (
            f"```bash\necho {number} > mine-{number}.txt\n```\n"
            "```python\nimport glob\nprint(*(open(f).read() for f in glob.glob('mine-*')))\n```"
        )
        asked = [TextMessage(content=blocks, source="user")]
        done = await agent.on_messages(asked, CancellationToken())
        failing = [TextMessage(content="```python\nprint(1); exit(3)\n```", source="user")]
        failed = await agent.on_messages(failing, CancellationToken())
        assert "exit code: 3" in failed.chat_message.content, failed.chat_message.content
        return done.chat_message.content


async def smolagents(number):
    return await asyncio.to_thread(code_agent, number)


def code_agent(number):
    from smolagents import CodeAgent, Model, tool
    from smolagents.models import ChatMessage, MessageRole

    from sandboxd_client.integrations.smolagents import SandboxdExecutor

    @tool
    def double(value: int) -> int:
        """Doubles a number.

        Args:
            value: The number.
        """
        return 2 * value

    class Scripted(Model):
        steps = (
            f"open('mine-{number}.txt', 'w').write('{number}')\nkept = double({number})",
            "1 / 0",
            "import glob\nfound = [open(f).read() for f in glob.glob('mine-*')]\n"
            "final_answer({'found': ' '.join(found), 'kept': kept, 'pair': (1, extra)})",
        )

        def generate(self, messages, **options):
            self.asked = getattr(self, "asked", 0) + 1
            self.last = str(messages[-1].content)
            text = f"Thought: next.\n<code>\n{self.steps[self.asked - 1]}\n</code>"
            return ChatMessage(role=MessageRole.ASSISTANT, content=text)

    model = Scripted()
    with SandboxdExecutor() as executor:
        agent = CodeAgent(tools=[double], model=model, executor=executor, verbosity_level=0)
        answer = agent.run("Please.", additional_args={"extra": 7})
    assert "ZeroDivisionError" in model.last, model.last
    assert (answer["kept"], answer["pair"]) == (2 * number, [1, 7]), answer
    return answer["found"]


async def swe_rex(number):
    from swerex.exceptions import CommandTimeoutError, NonZeroExitCodeError
    from swerex.runtime.abstract import (
        BashAction,
        BashInterruptAction,
        CloseBashSessionRequest,
        Command,
        CreateBashSessionRequest,
        ReadFileRequest,
        UploadRequest,
        WriteFileRequest,
    )

    from sandboxd_client.integrations.swe_rex import SandboxdDeployment

    deployment = SandboxdDeployment()
    await deployment.start()
    try:
        assert await deployment.is_alive()
        runtime = deployment.runtime
        await runtime.create_session(CreateBashSessionRequest())
        await runtime.run_in_session(BashAction(command="mkdir d && cd d && export n=1"))
        path = f"/workspace/d/mine-{number}.txt"
        await runtime.write_file(WriteFileRequest(path=path, content=str(number)))
        assert (await runtime.read_file(ReadFileRequest(path=path))).content == str(number)
        done = await runtime.run_in_session(
            BashAction(command="cat mine-*; exit $((n + 1))", check="silent")
        )
        assert done.exit_code == 2
        await raises(NonZeroExitCodeError, runtime.run_in_session(BashAction(command="false")))
        slow = BashAction(command="sleep 600", timeout=0.5)
        await raises(CommandTimeoutError, runtime.run_in_session(slow))
        endless = BashAction(command="touch started; sleep 600", check="silent")
        running = asyncio.create_task(runtime.run_in_session(endless))
        async with asyncio.timeout(30):
            while not await runtime.sandbox.files.exists("d/started"):
                await asyncio.sleep(0.1)
            await runtime.run_in_session(BashInterruptAction())
            assert (await running).exit_code != 0
        await runtime.execute(Command(command="rm d/started", shell=True, check=True))
        await runtime.upload(UploadRequest(source_path=__file__, target_path="copy.py"))
        await runtime.execute(Command(command=["test", "-s", "copy.py"], check=True))
        await runtime.close_session(CloseBashSessionRequest())
        await runtime.create_session(CreateBashSessionRequest())
        fresh = await runtime.run_in_session(BashAction(command="echo $PWD $n"))
        assert fresh.output == "/workspace\n", fresh
        listed = await runtime.execute(Command(command=["ls", "d"], check=True))
        assert listed.stdout == f"mine-{number}.txt\n"
        return done.output
    finally:
        await deployment.stop()


async def openai_agents(number):
    from agents import RunConfig, Runner
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from agents.sandbox.snapshot import NoopSnapshotSpec

    from sandboxd_client.integrations.openai_agents import SandboxdClient, SandboxdOptions
    from tests.vendors.programs.openai_script import Scripted

    patch = f"*** Begin Patch\n*** Add File: mine-{number}.txt\n+{number}\n*** End Patch\n"
    model = Scripted(("apply_patch", patch), ("exec_command", {"cmd": "cat mine-*"}))
    sandbox = SandboxRunConfig(
        client=SandboxdClient(),
        options=SandboxdOptions(user_id="openai", thread_id=f"thread {number}"),
        snapshot=NoopSnapshotSpec(),
    )
    config = RunConfig(sandbox=sandbox)
    done = await Runner.run(SandboxAgent(name="agent", model=model), "Please.", run_config=config)
    async with await AsyncSandbox.open("openai", f"thread {number}") as kept:
        assert kept.info.status == "attached"
        await kept.kill()
    return done.final_output.rpartition("Output:")[2]


async def raises(kind, call):
    try:
        await call
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


async def main():
    converse = globals()[sys.argv[1]]
    found = await asyncio.gather(*map(converse, range(20)))
    print(json.dumps([text.strip() for text in found]))


asyncio.run(main())
