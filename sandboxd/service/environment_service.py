"""EnvironmentService."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxd.config import Config
from sandboxd.environments.catalogue import Environments
from sandboxd.errors import InvalidRequest
from sandboxd.service import environment_wire, wire
from sandboxd.service.wire import Context
from sandboxd_proto.v1 import environment_service_pb2 as pb
from sandboxd_proto.v1 import environment_service_pb2_grpc as pb_grpc


class EnvironmentServicer(pb_grpc.EnvironmentServiceServicer):
    def __init__(self, environments: Environments, config: Config) -> None:
        self._environments = environments
        self._config = config

    async def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, context: Context
    ) -> pb.ListEnvironmentsResponse:
        return pb.ListEnvironmentsResponse(
            environments=[
                environment_wire.describe(status, self._config)
                for status in self._environments.list()
            ]
        )

    async def GetEnvironment(
        self, request: pb.GetEnvironmentRequest, context: Context
    ) -> pb.GetEnvironmentResponse:
        name = wire.configured_name("name", request.name)
        status = await self._environments.get_with_packages(name)
        return pb.GetEnvironmentResponse(
            environment=environment_wire.describe(status, self._config, with_packages=True)
        )

    async def BuildEnvironment(
        self, request: pb.BuildEnvironmentRequest, context: Context
    ) -> AsyncIterator[pb.BuildEnvironmentResponse]:
        name = wire.configured_name("name", request.name)
        build = self._environments.build(name, rebuild=request.rebuild)
        async for snapshot in build.follow():
            yield pb.BuildEnvironmentResponse(progress=environment_wire.progress(snapshot))
        await build.result()
        status = await self._environments.get_with_packages(name)
        yield pb.BuildEnvironmentResponse(
            environment=environment_wire.describe(status, self._config, with_packages=True)
        )

    async def DeleteEnvironment(
        self, request: pb.DeleteEnvironmentRequest, context: Context
    ) -> pb.DeleteEnvironmentResponse:
        name = wire.configured_name("name", request.name)
        await self._environments.delete(name)
        return pb.DeleteEnvironmentResponse(
            environment=environment_wire.describe(self._environments.get(name), self._config)
        )

    async def EnsurePackages(
        self, request: pb.EnsurePackagesRequest, context: Context
    ) -> AsyncIterator[pb.EnsurePackagesResponse]:
        raise InvalidRequest("packages", "this daemon cannot add packages to a session")
        yield pb.EnsurePackagesResponse()
