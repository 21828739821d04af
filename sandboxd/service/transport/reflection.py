"""Server reflection under both of its names, and with methods.

grpcio-reflection serves v1alpha only, and its symbol look-up does not know methods, so that
`describe package.Service.Method` fails. The messages of v1 are the same on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import grpc
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

from sandboxd.service.transport.guard import CallGuard
from sandboxd_proto.v1 import call_status_pb2  # noqa: F401  # to be described; only clients use it

SERVICE_V1 = "grpc.reflection.v1.ServerReflection"
METHOD = "ServerReflectionInfo"


class _Pool:
    """A descriptor pool that finds a method through its service."""

    def __init__(self, pool: descriptor_pool.DescriptorPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> object:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> object:  # noqa: N802  # the pool's own name
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            parent, dot, _ = symbol.rpartition(".")
            if not dot:
                raise
            return self._pool.FindFileContainingSymbol(parent)


def reflection_handlers(
    services: Iterable[str], guard: CallGuard
) -> Iterator[grpc.GenericRpcHandler]:
    """Handlers of reflection for these services, which answer known callers only."""
    names = (*services, SERVICE_V1, reflection.SERVICE_NAME)
    servicer = reflection.aio.ReflectionServicer(
        service_names=names, pool=_Pool(descriptor_pool.Default())
    )
    for name in (SERVICE_V1, reflection.SERVICE_NAME):
        method = grpc.stream_stream_rpc_method_handler(
            guard.conversation(servicer.ServerReflectionInfo, METHOD),
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        yield grpc.method_handlers_generic_handler(name, {METHOD: method})
