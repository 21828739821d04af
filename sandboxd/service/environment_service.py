"""EnvironmentService."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxd.access import current_caller
from sandboxd.config import Config
from sandboxd.environments.builds import Build
from sandboxd.environments.catalogue import Environments
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT
from sandboxd.packages.packages import Packages
from sandboxd.service import environment_wire, wire
from sandboxd.service.wire import Context
from sandboxd_proto.v1 import environment_service_pb2 as pb
from sandboxd_proto.v1 import environment_service_pb2_grpc as pb_grpc


class EnvironmentServicer(pb_grpc.EnvironmentServiceServicer):
    def __init__(self, environments: Environments, packages: Packages, config: Config) -> None:
        self._environments = environments
        self._packages = packages
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
        name = wire.configured_name("environment", request.environment or DEFAULT_ENVIRONMENT)
        texts = request.packages
        if not texts:
            raise wire.missing("packages")
        self._packages.check(self._environments.get(name).environment, texts)
        if not self._environments.is_ready(name):
            image = self._environments.build(name)
            async for snapshot in image.follow():
                yield pb.EnsurePackagesResponse(progress=environment_wire.progress(snapshot))
            await image.result()
        environment = self._environments.get(name).environment
        # Those who call for many users build for none of them.
        user_id = current_caller().user_id or ""
        found = await self._packages.find_or_build(environment, texts, user_id=user_id)
        if isinstance(found, Build):
            async for snapshot in found.follow():
                yield pb.EnsurePackagesResponse(progress=environment_wire.progress(snapshot))
            found = await found.result()
        yield pb.EnsurePackagesResponse(
            package_set=environment_wire.describe_set(found, environment)
        )
