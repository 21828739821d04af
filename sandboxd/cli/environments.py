"""`sandboxd environments`: list, show, build and remove environments, and build packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from google.protobuf import json_format

from sandboxd.cli import table
from sandboxd.cli.build_line import BuildLine
from sandboxd.cli.failure import call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client.methods.environments import (
    BUILD_ENVIRONMENT,
    DELETE_ENVIRONMENT,
    ENSURE_PACKAGES,
    GET_ENVIRONMENT,
    LIST_ENVIRONMENTS,
)
from sandboxd_proto.v1 import environment_service_pb2 as pb
from sandboxd_proto.v1.environment_pb2 import Environment, EnvironmentState

HEADER = ("ENVIRONMENT", "STATE", "SIZE", "SOURCE", "SESSIONS", "DESCRIPTION")
SHORT_ID = 12


@click.group("environments")
def command() -> None:
    """List, show, build and remove environments, and build packages for them."""


@command.command("list")
@target_options
@json_option
def list_(target: Target, as_json: bool) -> None:
    """List the environments that sessions can be opened in."""

    found = call(environments_of(target))
    if as_json:
        table.show_document([document(environment) for environment in found])
    else:
        table.show(HEADER, map(row, found))


async def environments_of(target: Target) -> Sequence[Environment]:
    async with target.connection() as connection:
        return (await connection.call(LIST_ENVIRONMENTS, pb.ListEnvironmentsRequest())).environments


@command.command("show")
@click.argument("name")
@target_options
@json_option
def show(name: str, target: Target, as_json: bool) -> None:
    """Print everything about an environment, with its packages and their versions."""

    async def work() -> Environment:
        async with target.connection() as connection:
            request = pb.GetEnvironmentRequest(name=name)
            return (await connection.call(GET_ENVIRONMENT, request)).environment

    found = call(work())
    if as_json:
        table.show_document(document(found))
        return
    for key, value in facts(found).items():
        click.echo(f"{key:<12} {table.printable(value)}")
    for package in found.packages:
        click.echo(f"{package.kind:<12} {table.printable(f'{package.name} {package.version}')}")


@command.command("build")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--rebuild", is_flag=True, help="Build again, from sources that may be newer.")
@click.option(
    "--local",
    "is_local",
    is_flag=True,
    help="Build without a daemon, with the engine of this host.",
)
@target_options
def build(names: Sequence[str], rebuild: bool, is_local: bool, target: Target) -> None:
    """Build environments and show the progress. One that is built already stays as it is.

    The daemon goes on if this command is interrupted; run it again to follow the build.
    """
    if is_local:
        # Imported on demand: the other commands need nothing of the daemon.
        from sandboxd.cli.local_build import build_locally

        build_locally(names, rebuild=rebuild)
        return
    for name in names:
        built = call(_build(target, name, rebuild=rebuild))
        click.echo(f"{name}: {built_line(built)}")


async def _build(target: Target, name: str, *, rebuild: bool) -> Environment:
    request = pb.BuildEnvironmentRequest(name=name, rebuild=rebuild)
    async with target.connection() as connection:
        with BuildLine(name) as line:
            async for event in connection.stream(BUILD_ENVIRONMENT, request):
                if event.HasField("environment"):
                    return event.environment
                now = event.progress
                line.show(now.step, now.fraction, now.detail, now.elapsed.ToSeconds())
    raise AssertionError("the daemon ends the stream with the environment or an error")


@command.command("packages")
@click.argument("name")
@click.argument("packages", nargs=-1, required=True, metavar="PACKAGE...")
@target_options
@json_option
def packages(name: str, packages: Sequence[str], target: Target, as_json: bool) -> None:
    """Build a set of packages for an environment, such as `pandas`, `plotly>=5` or `zod@^3`.

    Sessions that ask for the same packages need not wait for them then. The daemon goes on if this
    command is interrupted; run it again to follow the build.
    """
    found = call(_ensure_packages(target, name, packages))
    if as_json:
        table.show_document(json_format.MessageToDict(found, preserving_proto_field_name=True))
        return
    click.echo(f"{name}: {len(found.packages)} packages, {table.size(found.size_bytes)}")
    for package in found.packages:
        click.echo(f"{package.name} {package.version}")


async def _ensure_packages(target: Target, name: str, packages: Sequence[str]) -> pb.PackageSet:
    request = pb.EnsurePackagesRequest(environment=name, packages=packages)
    async with target.connection() as connection:
        with BuildLine(name) as line:
            async for event in connection.stream(ENSURE_PACKAGES, request):
                if event.HasField("package_set"):
                    return event.package_set
                now = event.progress
                line.show(now.step, now.fraction, now.detail, now.elapsed.ToSeconds())
    raise AssertionError("the daemon ends the stream with the set or an error")


@command.command("remove")
@click.argument("name")
@target_options
def remove(name: str, target: Target) -> None:
    """Remove the image of an environment and cancel its build. It can be built again."""

    async def work() -> None:
        async with target.connection() as connection:
            request = pb.DeleteEnvironmentRequest(name=name)
            await connection.call(DELETE_ENVIRONMENT, request)

    call(work())
    click.echo(f"{name}: removed")


def state_of(environment: Environment) -> str:
    name = EnvironmentState.Name(environment.state).removeprefix("ENVIRONMENT_STATE_")
    return name.lower().replace("_", " ")


def row(environment: Environment) -> Sequence[object]:
    state = state_of(environment)
    if environment.HasField("progress"):
        state += f" {environment.progress.fraction:.0%}"
    return (
        environment.name,
        state,
        table.size(environment.image_bytes) if environment.image_bytes else "-",
        environment.source or "-",
        environment.active_sessions,
        environment.description,
    )


def facts(environment: Environment) -> Mapping[str, str]:
    """What is known of an environment, in the order of interest."""
    limits = environment.limits
    known = {
        "name": environment.name,
        "description": environment.description,
        "state": state_of(environment),
        "why": environment.state_detail,
        "image": environment.image_id,
        "size": table.size(environment.image_bytes) if environment.image_bytes else "",
        "built": environment.build_time.ToJsonString() if environment.build_time.seconds else "",
        "took": f"{environment.build_duration.ToSeconds()} s"
        if environment.HasField("build_duration")
        else "",
        "source": environment.source,
        "not used": "; ".join(environment.skipped_sources),
        "python": environment.python_version,
        "node": environment.node_version,
        "packages": f"of {environment.package_kind}",
        "policy": environment.command_policy,
        "variables": ", ".join(sorted(environment.env_vars)),
        "limits": f"{table.size(limits.memory_bytes)} memory, {limits.max_processes} processes",
        "sessions": str(environment.active_sessions),
    }
    return {key: value for key, value in known.items() if value}


def built_line(environment: Environment) -> str:
    took = environment.build_duration.ToMilliseconds() / 1000
    short = environment.image_id.removeprefix("sha256:")[:SHORT_ID]
    is_new = environment.HasField("build_duration")
    how = f"built in {took:.1f} s from {environment.source}" if is_new else "ready"
    return f"{how}, {table.size(environment.image_bytes)}, image {short}"


def document(environment: Environment) -> Any:
    return json_format.MessageToDict(
        environment, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
