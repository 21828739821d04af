"""mini-swe-agent runs its commands in a sandbox. Needs `pip install 'sandboxd[mini-swe-agent]'`.

With a model: `DefaultAgent(model, environment, ...).run("...")`.
"""

from __future__ import annotations

from sandboxd_client.integrations.mini_swe_agent import SandboxdEnvironment

with SandboxdEnvironment() as environment:
    print(environment.execute({"command": "echo $((6 * 7))"})["output"])
