"""Code that attacks its context: the run ends as it should, everyone else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from sandboxd_proto.v1 import code_service_pb2 as pb
from tests.docker.code import LOST, OK, RAISED, TIMED_OUT, run_code, value_of
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.test_lifecycle import open_session


class Attack(NamedTuple):
    code: str
    ends: tuple[int, ...]
    """The statuses that are right."""
    seconds: float = 10.0


ANY = (OK, RAISED, TIMED_OUT, LOST)
ATTACKS = {
    "closes all descriptors": Attack("import os; os.closerange(0, 4096)", ANY),
    "closes 1 and 2": Attack("import os; os.close(1); os.close(2)\nprint('x')", (OK, RAISED)),
    "replaces sys.stdout": Attack("import sys; sys.stdout = None; sys.stderr = 5", (OK, RAISED)),
    "replaces print": Attack("import builtins; builtins.print = None; print = 3", (OK,)),
    "patches json": Attack("import json; json.dumps = None; json.loads = 1/1\n{'a': 1}", (OK,)),
    "patches struct and socket": Attack(
        "import struct, socket\nstruct.pack = struct.Struct = socket.socket = None\n5", (OK,)
    ),
    "patches builtins": Attack(
        "import builtins\nfor n in ('len', 'isinstance', 'str', 'type', 'repr'):\n"
        "    setattr(builtins, n, None)\n7",
        (OK, RAISED),
    ),
    "exits hard": Attack("import os; os._exit(7)", (LOST,)),
    "kills itself": Attack("import os; os.kill(os.getpid(), 9)", (LOST,)),
    "kills its group": Attack("import os; os.killpg(0, 9)", (LOST,)),
    "kills everything": Attack("import os; os.kill(-1, 9)", ANY),
    "segmentation fault": Attack("import ctypes; ctypes.string_at(0)", (LOST,)),
    "stops itself": Attack("import os; os.kill(os.getpid(), 19)", (TIMED_OUT, LOST), 1.0),
    "fork bomb": Attack(
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", ANY, 2.0
    ),
    "threads without end": Attack(
        "import threading, time\nwhile True:\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        (RAISED, TIMED_OUT, LOST),
    ),
    "fork returns into the runner": Attack(
        "import os\npid = os.fork()\nif not pid: raise SystemExit", ANY
    ),
    "child that stays": Attack(
        "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(300)\n    os._exit(0)",
        (OK,),
    ),
    "memory without end": Attack(
        "x = []\nwhile True: x.append(bytearray(1 << 20))", (LOST, RAISED), 30.0
    ),
    "endless repr": Attack(
        "class A:\n    def __repr__(self):\n        while True: pass\nA()", (OK, RAISED, TIMED_OUT)
    ),
    "raising repr": Attack("class A:\n    def __repr__(self): raise SystemExit\nA()", (OK, RAISED)),
    "huge repr": Attack(
        "class A:\n    def __repr__(self): return 'x' * (200 << 20)\nA()", ANY, 30.0
    ),
    "raising str of an exception": Attack(
        "class E(Exception):\n    def __str__(self): raise KeyboardInterrupt\nraise E", (RAISED,)
    ),
    "hostile html": Attack(
        "class A:\n    def _repr_html_(self):\n        while True: pass\nA()",
        (OK, RAISED, TIMED_OUT),
    ),
    "swallows interrupts": Attack(
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        (TIMED_OUT,),
        1.0,
    ),
    "ignores signals": Attack(
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass",
        (TIMED_OUT,),
        1.0,
    ),
    "blocks signals": Attack(
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        (TIMED_OUT,),
        1.0,
    ),
    "loop in C": Attack("sum(range(10**12))", (TIMED_OUT,), 1.0),
    "atexit that hangs": Attack(
        "import atexit, time\natexit.register(time.sleep, 300)\nimport sys; sys.exit(1)", (RAISED,)
    ),
    "thread that prints for ever": Attack(
        "import threading\ndef f():\n    while True: print('x' * 1000)\n"
        "threading.Thread(target=f, daemon=True).start()",
        ANY,
    ),
    "recursion a million deep": Attack(
        "import sys; sys.setrecursionlimit(10**7)\ndef f(n): return f(n + 1)\nf(0)", ANY, 20.0
    ),
    "list a million deep": Attack("x = []\nfor _ in range(10**6): x = [x]\nx", ANY, 20.0),
    "result of a gigabyte": Attack("__result__ = 'x' * (1 << 30)", (LOST, RAISED, OK), 20.0),
    "result with a cycle": Attack("x = []; x.append(x); __result__ = x", (OK, RAISED)),
    "forged end on every descriptor": Attack(
        "import os, struct\nfor d in range(3, 2000):\n"
        "    try: os.write(d, struct.pack('!BBI', 2, 0, 1))\n    except OSError: pass",
        ANY,
    ),
    "garbage on every descriptor": Attack(
        "import os\nfor d in range(3, 2000):\n"
        "    try: os.write(d, os.urandom(500))\n    except OSError: pass",
        ANY,
    ),
    "reads every descriptor": Attack(
        "import os\nfor d in range(3, 2000):\n"
        "    try: os.set_blocking(d, False); os.read(d, 65536)\n    except OSError: pass",
        ANY,
    ),
    "much output": Attack(
        "import os\nfor _ in range(300): os.write(1, b'x' * (1 << 20))", (OK, TIMED_OUT), 20.0
    ),
    "10 000 displays": Attack("for n in range(10_000): display('x' * 1000)", (OK,), 20.0),
    "ptrace of the parent": Attack(
        "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
        "[libc.ptrace(16, int(p), 0, 0) for p in os.listdir('/proc') if p.isdigit()]",
        ANY,
    ),
    "null bytes and surrogates": Attack("print('\\0' * 10)\n'\\ud800'", (OK, RAISED)),
    "deletes the runner's modules": Attack(
        "import sys\nfor n in list(sys.modules): del sys.modules[n]", ANY
    ),
    "endless codec": Attack("print('\\\\N{' * 1000)", (OK, RAISED)),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon() -> AsyncIterator[DaemonProcess]:
    async with running_daemon(POOL_SIZE="1") as daemon:
        yield daemon


@pytest.mark.asyncio(loop_scope="module")
async def test_hostile_code_is_held(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run or context ends as it should; the daemon, the session, a command and another context go
    on, and the next run of the same context works."""
    async with daemon.api() as api:
        session_id = (await open_session(api, "hostile")).session.session_id
        assert await value_of(api, session_id, "kept = 1\nkept", context="other") == 1
        problems = {}
        for name, attack in ATTACKS.items():
            try:
                async with asyncio.timeout(90):
                    problem = await _attack(api, session_id, attack)
            except Exception as error:
                problem = repr(error)
            if problem:
                problems[name] = problem
    with capsys.disabled():
        print(f"\ncode hostile: {len(ATTACKS) - len(problems)}/{len(ATTACKS)} held")
    assert problems == {}


async def _attack(api: Api, session_id: str, attack: Attack) -> str:
    """What is wrong; empty if it was held."""
    ended = await run_code(api, session_id, attack.code, seconds=attack.seconds, context="victim")
    if ended.status not in attack.ends:
        return (
            f"it ended as {pb.CodeStatus.Name(ended.status)}: {ended.exit.hint} {ended.error.type}"
        )
    if (await run_code(api, session_id, "40 + 2", context="victim")).status != OK:
        await api.code.RestartContext(
            pb.RestartContextRequest(session_id=session_id, context="victim")
        )
        following = await run_code(api, session_id, "40 + 2", context="victim")
        if following.result.json != "42":
            return f"the next run: {following.status} {following.error.message}"
    beside = await run_code(api, session_id, "globals().get('kept')", context="other")
    if beside.status == LOST:  # what kills everything kills it too, maybe only now
        beside = await run_code(api, session_id, "1", context="other")
    if beside.status != OK:
        return f"the other context: {beside.exit.hint}"
    await api.code.RestartContext(pb.RestartContextRequest(session_id=session_id, context="victim"))
    return ""
