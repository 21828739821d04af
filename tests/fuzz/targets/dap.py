"""What an editor sends to the debug adapter."""

from __future__ import annotations

import json
from collections.abc import Hashable
from random import Random

from sandboxd.cli.dap_adapter import Adapter
from sandboxd.cli.dap_messages import Decoder, InvalidMessage, Message, encoded
from sandboxd.cli.target import Target as Daemon
from tests.fuzz.target import Target, stateless

PIECE = 1000
REQUESTS: list[Message] = [
    {"seq": 1, "type": "request", "command": "initialize", "arguments": {"adapterID": "x"}},
    {
        "seq": 2,
        "type": "request",
        "command": "setBreakpoints",
        "arguments": {"source": {"path": "/p.py"}, "breakpoints": [{"line": 3}]},
    },
    {"seq": 3, "type": "request", "command": "stackTrace", "arguments": {"threadId": 1}},
    {"seq": 4, "type": "request", "command": "variables", "arguments": {"variablesReference": 1}},
    {"seq": 5, "type": "request", "command": "evaluate", "arguments": {"expression": "x"}},
]


async def talk(data: bytes) -> Hashable:
    """Bytes in pieces; every request is answered once, nothing else happens."""
    adapter, decoder = Adapter(Daemon(None, None), None, lambda _: None), Decoder()
    outcomes = []
    try:
        for begin in range(0, len(data), PIECE):
            for message in decoder.feed(data[begin : begin + PIECE]):
                if message.get("command") == "launch":
                    continue  # it reads a file
                answer = await adapter.answer(message)
                json.dumps(answer)
                outcomes.append((str(answer["command"])[:20], answer["success"]))
    except InvalidMessage as error:
        outcomes.append((str(error), False))
    finally:
        await adapter.aclose()
    return tuple(outcomes[:4])


def with_length(data: bytes, random: Random) -> bytes:
    """The changed body behind a header that fits it."""
    body = data.partition(b"\r\n\r\n")[2]
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


DAP = Target(
    name="dap",
    open=stateless(talk),
    seeds=[encoded(request) for request in REQUESTS],
    words=[b"Content-Length: ", b"\r\n\r\n", b"null", b'"arguments":', b"[]", b"{}", b"-1"],
    repair=with_length,
)
