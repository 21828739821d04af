"""The API is served on the loop that the daemon runs on."""

from __future__ import annotations

import uvloop


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}
