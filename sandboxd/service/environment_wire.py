"""Domain objects to messages of EnvironmentService."""

from __future__ import annotations

from sandboxd.config import Config
from sandboxd.environments.catalogue import State, Status
from sandboxd.environments.environment import Environment, PackageKind
from sandboxd.environments.progress import Snapshot
from sandboxd.packages.store import PackageSet
from sandboxd.service import session_wire, wire
from sandboxd_proto.v1 import environment_pb2
from sandboxd_proto.v1 import environment_service_pb2 as service_pb

_STATES = {
    State.NOT_BUILT: environment_pb2.ENVIRONMENT_STATE_NOT_BUILT,
    State.BUILDING: environment_pb2.ENVIRONMENT_STATE_BUILDING,
    State.READY: environment_pb2.ENVIRONMENT_STATE_READY,
    State.FAILED: environment_pb2.ENVIRONMENT_STATE_FAILED,
    State.UNAVAILABLE: environment_pb2.ENVIRONMENT_STATE_UNAVAILABLE,
}
_PACKAGE_KINDS = {PackageKind.PYTHON: "python", PackageKind.NPM: "node"}


def describe(
    status: Status, config: Config, *, with_packages: bool = False
) -> environment_pb2.Environment:
    environment = status.environment
    message = environment_pb2.Environment(
        name=environment.name,
        description=status.definition.description,
        state=_STATES[status.state],
        state_detail=status.detail,
        limits=session_wire.limits(environment, config),
        # Only the names: what an operator sets there may be secret.
        env_vars=dict.fromkeys(environment.env_vars, ""),
        command_policy=environment.command_policy or config.command_policy,
        active_sessions=status.session_count,
        python_version=status.definition.python,
        node_version=status.definition.node,
        package_kind=environment.packages,
    )
    if status.progress is not None:
        message.progress.CopyFrom(progress(status.progress))
    if (built := status.built) is None:
        return message
    message.source = built.source
    message.skipped_sources.extend(built.skipped)
    message.image_id = built.image_id
    message.image_bytes = built.size_bytes
    if built.built_at:
        message.build_time.CopyFrom(wire.timestamp(built.built_at))
    if built.seconds:
        message.build_duration.CopyFrom(wire.duration(built.seconds))
    if with_packages:
        message.packages.extend(
            environment_pb2.EnvironmentPackage(kind=kind, name=name, version=version)
            for kind, name, version in built.packages
        )
    return message


def describe_set(found: PackageSet, environment: Environment) -> service_pb.PackageSet:
    return service_pb.PackageSet(
        package_set_id=found.key,
        environment=environment.name,
        packages=[
            environment_pb2.EnvironmentPackage(
                kind=_PACKAGE_KINDS[found.target.kind], name=name, version=version
            )
            for name, version in found.packages
        ],
        size_bytes=found.size_bytes,
    )


def progress(snapshot: Snapshot) -> environment_pb2.BuildProgress:
    return environment_pb2.BuildProgress(
        step=snapshot.step,
        step_number=snapshot.step_number,
        step_count=snapshot.step_count,
        fraction=snapshot.fraction,
        detail=snapshot.detail,
        elapsed=wire.duration(snapshot.elapsed_seconds),
        since_last_sign=wire.duration(snapshot.idle_seconds),
    )
