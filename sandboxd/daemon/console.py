"""Opens the web console of a daemon."""

from __future__ import annotations

from contextlib import AsyncExitStack

import structlog

from sandboxd.access import Caller, Logins
from sandboxd.config import Config
from sandboxd.console.site import Console, ConsoleSettings
from sandboxd.errors import ConsoleOff, Unauthenticated
from sandboxd.http.listener import AddressInUse
from sandboxd.observability.journal import KeptJournal
from sandboxd.service.in_process import InProcessCalls
from sandboxd.service.transport.keyring import Keyring
from sandboxd.service.transport.server import ApiServer

log = structlog.get_logger()


class ConsoleLinks:
    """Makes links to the console, once it is served."""

    def __init__(self, config: Config, keyring: Keyring) -> None:
        self._config = config
        self._settings = _settings(config, keyring)
        self.logins = Logins(config.state_dir / "console_logins.json", keyring.access)
        self._console: Console | None = None

    def __call__(self, caller: Caller) -> str:
        """A link that logs in as this caller; ConsoleOff."""
        if self._console is None:
            raise ConsoleOff
        code = self.logins.new_code(caller)
        return f"{self._console.address}/#code={code}"

    async def serve(self, server: ApiServer, journal: KeptJournal, stack: AsyncExitStack) -> None:
        """Serve the console, unless it is off. The API does not depend on it: if its port is taken,
        the daemon serves without it."""
        if not self._config.console_port:
            return
        self.logins.load()

        def on_refused(peer: str) -> None:
            journal.on_stranger_refused(
                Unauthenticated("The console was given a wrong token."), "console login", peer
            )

        calls = InProcessCalls(server.handlers)
        console = Console(self._settings, calls, self.logins, on_refused)
        try:
            self._console = await stack.enter_async_context(console)
        except AddressInUse as error:
            why = f"{error}; set SANDBOXD_CONSOLE_PORT to a free port, or to 0 for no console"
            log.warning("console.not_served", why=why)


def _settings(config: Config, keyring: Keyring) -> ConsoleSettings:
    """On loopback there is no TLS: certificates seldom name it, and a port that is forwarded there
    comes through ssh."""
    is_encrypted = config.console_is_on_network and keyring.certificates is not None
    return ConsoleSettings(
        config.console_host,
        config.console_port,
        config.names_of_console,
        keyring.certificates.context() if is_encrypted and keyring.certificates else None,
    )
