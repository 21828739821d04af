"""Builds of environments without a daemon, for the first start of one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import click

from sandboxd.cli import table
from sandboxd.cli.build_line import BuildLine
from sandboxd.cli.settings import load_or_exit
from sandboxd.daemon import logs
from sandboxd.daemon.building import LocalBuilds
from sandboxd.errors import SandboxdError

FAILED_CODE = 1


def build_locally(names: Sequence[str], *, rebuild: bool) -> None:
    """Build these with the engine of this host, as the daemon would."""
    config = load_or_exit(None).config
    logs.configure("warning")
    try:
        asyncio.run(_build_all(LocalBuilds(config), names, rebuild=rebuild))
    except SandboxdError as error:
        click.echo(f"sandboxd: {error.message}", err=True)
        sys.exit(FAILED_CODE)
    except KeyboardInterrupt:
        sys.exit(130)


async def _build_all(builds: LocalBuilds, names: Sequence[str], *, rebuild: bool) -> None:
    async with builds:
        for name in names:
            with BuildLine(name) as line:
                build = builds.start(name, rebuild=rebuild)
                async for now in build.follow():
                    line.show(now.step, now.fraction, now.detail, now.elapsed_seconds)
                built = await build.result()
            how = f"built in {built.seconds:.1f} s" if built.seconds else "ready"
            click.echo(f"{name}: {how}, {table.size(built.size_bytes)}, {built.tag}")
