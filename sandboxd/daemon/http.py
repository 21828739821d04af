"""Opens the API over HTTP of a daemon."""

from __future__ import annotations

from contextlib import AsyncExitStack

import structlog

from sandboxd.config import Config
from sandboxd.http.listener import Address, AddressInUse
from sandboxd.http.site import HttpApi, HttpSettings, Observed
from sandboxd.observability.metrics import Exposition
from sandboxd.pool.pools import Pools
from sandboxd.service.in_process import InProcessCalls
from sandboxd.service.transport.keyring import Keyring
from sandboxd.service.transport.server import ApiServer

log = structlog.get_logger()


async def open_http(
    config: Config,
    keyring: Keyring,
    server: ApiServer,
    exposition: Exposition,
    pools: Pools,
    stack: AsyncExitStack,
) -> None:
    """Serve the API over HTTP, unless it is off. gRPC does not depend on it: if its port is taken,
    the daemon serves without it."""
    if not config.http_address:
        return
    observed = Observed(
        is_serving=lambda: server.is_serving,
        is_ready=lambda: pools.default.figures.warm > 0,
        metrics=lambda: (exposition.text(), exposition.content_type),
    )
    calls = InProcessCalls(server.handlers)
    api = HttpApi(_settings(config, keyring), calls, server.guard, observed)
    try:
        await stack.enter_async_context(api)
    except AddressInUse as error:
        why = f"{error}; set SANDBOXD_HTTP_ADDRESS to another one, or to nothing for none"
        log.warning("http.not_served", why=why)
    else:
        log.info("http.serving", address=api.address)


def _settings(config: Config, keyring: Keyring) -> HttpSettings:
    address = Address.read(config.http_address)
    certificates = None if address.socket is not None else keyring.certificates
    return HttpSettings(
        address,
        names=config.names_over_http,
        origins=config.origins_over_http,
        any_host=config.http_is_everywhere,
        open_paths=config.open_over_http,
        tls=None if certificates is None else certificates.context(asks_clients=True),
    )
