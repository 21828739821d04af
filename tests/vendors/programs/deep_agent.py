"""A deep agent of whichever release is on the path; prints the release and the tools' answers."""

from __future__ import annotations

import importlib.metadata
import json
import sys

from deepagents import create_deep_agent

from sandboxd_client.integrations.deepagents import SandboxdBackend, with_artifacts
from tests.fakes.chat_model import ScriptedModel, calls, says

model = ScriptedModel(
    steps=[
        calls("write_file", file_path="/workspace/a.txt", content="one\ntwo\n"),
        calls("edit_file", file_path="/workspace/a.txt", old_string="two", new_string="three"),
        calls("read_file", file_path="/workspace/a.txt"),
        calls("grep", pattern="three", path="/workspace", output_mode="content"),
        calls("glob", pattern="**/*.txt", path="/workspace"),
        calls("ls", path="/workspace"),
        calls("execute", command="seq 100000; exit 3"),
        calls("execute", command="cat .deepagents/large_tool_results/* | wc -l"),
        says(lambda answer: "done"),
    ]
)
agent = create_deep_agent(
    model=model, backend=with_artifacts(SandboxdBackend(server_url=sys.argv[1]))
)
done = agent.invoke(
    {"messages": [{"role": "user", "content": "Please."}]},
    config={"configurable": {"user_id": "ada", "thread_id": "previous release"}},
)
answers = [str(message.content) for message in done["messages"] if message.type == "tool"]
sys.stdout.write(json.dumps([importlib.metadata.version("deepagents"), *answers]) + "\n")
