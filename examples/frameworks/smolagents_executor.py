"""smolagents' steps run in a context of a sandbox. Needs `pip install 'sandboxd[smolagents]'`.

With a model: `CodeAgent(tools=[], model=model, executor=executor).run("...")`.
"""

from __future__ import annotations

from sandboxd_client.integrations.smolagents import SandboxdExecutor

with SandboxdExecutor() as executor:
    executor.send_variables({"six": 6})
    executor("product = six * 7")
    print(executor("product").output)
