"""`sandboxd dap`: a debug adapter on standard input and output, for editors."""

from __future__ import annotations

import itertools
import sys

import click

from sandboxd.cli import keyboard
from sandboxd.cli.dap_adapter import Adapter
from sandboxd.cli.dap_messages import Decoder, InvalidMessage, Message, encoded
from sandboxd.cli.failure import USAGE, Failure, call
from sandboxd.cli.target import Target, target_options


@click.command("dap")
@click.option(
    "-s", "--session", metavar="SESSION", help="Session to use unless `launch` names one."
)
@target_options
def command(session: str | None, target: Target) -> None:
    """Serve the Debug Adapter Protocol on standard input and output.

    An editor starts this and debugs Python files in a sandbox. `launch` takes `program` (a file
    here) or `code`, and `session`, `context`, `stopOnEntry`, `timeout`.
    """
    call(_serve(target, session))


async def _serve(target: Target, session: str | None) -> None:
    numbers = itertools.count(1)

    def send(message: Message) -> None:
        sys.stdout.buffer.write(encoded({"seq": next(numbers), **message}))
        sys.stdout.buffer.flush()

    adapter, decoder = Adapter(target, session, send), Decoder()
    try:
        async for chunk in keyboard.StandardInput().chunks():
            for message in decoder.feed(chunk):
                if message.get("type") != "request":
                    continue
                send(await adapter.answer(message))
                await adapter.after(message)
            if adapter.is_over:
                return
    except InvalidMessage as error:
        raise Failure(f"standard input is not the Debug Adapter Protocol: {error}", USAGE) from None
    finally:
        await adapter.aclose()
