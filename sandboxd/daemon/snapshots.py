"""The snapshots of sessions, as the configuration wants them."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from functools import partial
from urllib.parse import urlsplit

import structlog

from sandboxd.config import Config
from sandboxd.daemon import settings
from sandboxd.daemon.instance import StartRefused
from sandboxd.errors import SandboxdError
from sandboxd.sandboxes.kept_files import KeptFilesStore
from sandboxd.sessions.lines import SessionLines
from sandboxd.snapshots.contract import Snapshots
from sandboxd.snapshots.opening import Place, SecretUnusable, ServicePlace, open_snapshots
from sandboxd.tasks import Tasks

log = structlog.get_logger()

GARBAGE_SECONDS = 3600.0
"""Pause between two garbage collections of all users."""
LOOK_SECONDS = 60.0
"""Pause between two looks at how much space is left."""
AGAIN_SECONDS = 2.0
"""Pause between the looks of a collection that should give space back soon."""
PACE = 20
"""A look is followed by a pause of at least so many times what it took."""
_TASK = "snapshots-garbage"


async def open_lines(
    config: Config, kept_files: KeptFilesStore, stack: AsyncExitStack
) -> SessionLines:
    """The snapshots of sessions. StartRefused if the settings cannot be used."""
    why_off = _why_off(config)
    snapshots = None if why_off else await _open(config, stack)
    return SessionLines(
        snapshots,
        kept_files,
        settings.snapshot_settings(config),
        workspace_dir=config.workspace_dir,
        why_off=why_off,
    )


def _why_off(config: Config) -> str:
    if not config.snapshots:
        return "SANDBOXD_SNAPSHOTS is off"
    if config.workspace_backend == "memory":
        return "workspaces are in memory here, and only those on disks have snapshots"
    return ""


async def _open(config: Config, stack: AsyncExitStack) -> Snapshots:
    place = Place(
        directory=config.state_dir / "snapshots",
        secret_file=config.snapshot_key_file,
        service=_service(config),
        reserve_bytes=settings.snapshot_reserve_bytes(config),
        user_bytes=config.max_user_snapshot_mb << 20,
    )
    try:
        snapshots: Snapshots = await asyncio.to_thread(open_snapshots, place)
    except (SecretUnusable, SandboxdError, OSError) as error:
        raise StartRefused(f"snapshots cannot be kept: {error}") from error
    stack.push_async_callback(snapshots.close)
    tasks = Tasks()
    stack.push_async_callback(tasks.finish)
    stack.callback(tasks.cancel, _TASK)
    collecting = _collect_garbage(snapshots, partial(_is_low, config))
    tasks.spawn(collecting, _TASK)
    return snapshots


def _service(config: Config) -> ServicePlace | None:
    if not config.snapshot_store:
        return None
    parts = urlsplit(config.snapshot_store)
    return ServicePlace(
        bucket=parts.netloc,
        prefix=parts.path.strip("/"),
        endpoint=config.snapshot_store_endpoint,
        region=config.snapshot_store_region,
    )


def _is_low(config: Config) -> bool:
    """Whether snapshots are about to be refused; never if they are elsewhere."""
    if config.snapshot_store:
        return False
    return shutil.disk_usage(config.state_dir).free < 2 * settings.snapshot_reserve_bytes(config)


async def _collect_garbage(snapshots: Snapshots, is_low: Callable[[], bool]) -> None:
    """Delete what no snapshot needs: of all users now and then, and soon if space is low; of one
    user soon after much was deleted."""
    all_at = time.monotonic() + GARBAGE_SECONDS
    pause = LOOK_SECONDS
    while True:
        owners: Collection[str] | None = await snapshots.much_deleted(pause)
        began, pause = time.monotonic(), LOOK_SECONDS
        if began >= all_at or is_low():
            owners, all_at = None, began + GARBAGE_SECONDS
        elif not owners:
            continue
        try:
            done = await snapshots.collect_garbage(owners)
            if done.deleted:
                log.info(
                    "snapshots.garbage", deleted=done.deleted, deleted_bytes=done.deleted_bytes
                )
            if done.waiting and (owners or is_low()):
                pause = AGAIN_SECONDS
        except (SandboxdError, OSError) as error:
            log.warning("snapshots.garbage_failed", error=str(error))
        await asyncio.sleep(max(AGAIN_SECONDS, PACE * (time.monotonic() - began)))
