from collections.abc import Iterator

from aiohttp import web

from sandboxd.http.calls import HttpCalls


def seed_routes(calls: HttpCalls) -> Iterator[web.RouteDef]:
    return iter(())
