"""The contenders, in the order of the table: their modules, how they are used, what they lack."""

from __future__ import annotations

from benchmarks.peers import tasks
from benchmarks.peers.results import OURS

LLM_SANDBOX, SWE_REX = "llm-sandbox", "SWE-ReX"
CLI, API = "docker CLI", "docker API"
OF_THE_INDEX = (LLM_SANDBOX, SWE_REX)
POOL_SIZE = 2
"""Of our pool and of llm-sandbox's."""

MODULES = {
    OURS: "on_sandboxd",
    LLM_SANDBOX: "on_llm_sandbox",
    SWE_REX: "on_swe_rex",
    CLI: "on_docker",
    API: "on_docker",
}
USES = {
    OURS: (
        f"the synchronous SDK over the unix socket of a daemon with {POOL_SIZE} warm sandboxes; "
        "without a pool, of a second daemon that keeps none. A new interpreter is a new code "
        "context."
    ),
    LLM_SANDBOX: (
        f"`PooledSandboxSession` of a pool with {POOL_SIZE} containers; without a pool "
        "`SandboxSession`; `execute_command`, which runs the words without a shell; "
        "`copy_to_runtime` and `copy_from_runtime`; code with `InteractiveSandboxSession` "
        "(variables are kept) and `run` (new interpreter). The image already has the virtual "
        "environment and IPython (`skip_environment_setup`); containers have no network."
    ),
    SWE_REX: (
        "`DockerDeployment` that stays, with `create_session`; commands with "
        "`execute(shell=True)`, in the shell that stays with `run_in_session`; `write_file` and "
        "`read_file`. Its server is installed in the image. The engine may have no bridge, so the "
        "container has the host's network and the server listens on the port that "
        "`DockerDeployment` chose, which also saves it the port mapping."
    ),
    CLI: "`docker exec`, `docker cp` and `docker run --rm`, a process each.",
    API: "HTTP over the engine's socket: create, start, read and inspect an exec; archives.",
}
_NO_POOL = {tasks.OPEN_WARM: "it has no pool"}
_NO_SHELL = {tasks.SHELL: "every command is a process of its own"}
_NO_CODE = dict.fromkeys((tasks.CODE_KEPT, tasks.CODE_NEW), "it runs commands, not code")
_NO_OPEN = {tasks.OPEN_NEW: "the start of a container is measured as `docker run`"}
ABSENT = {
    LLM_SANDBOX: _NO_SHELL,
    SWE_REX: {**_NO_POOL, **_NO_CODE},
    CLI: {**_NO_POOL, **_NO_SHELL, **_NO_CODE},
    API: {**_NO_POOL, **_NO_OPEN, **_NO_SHELL, **_NO_CODE},
}
"""Why there is no figure, by contender and task."""
