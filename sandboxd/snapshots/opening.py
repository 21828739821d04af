"""Snapshots as a daemon has them: its key, and a directory or an object service as the store."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from sandboxd.snapshots.objects import DirectoryObjects, Objects
from sandboxd.snapshots.snapshots import DiskSnapshots, SnapshotSettings
from sandboxd.snapshots.store import StoreSettings

SECRET_BYTES = 32


class SecretUnusable(Exception):
    """The file with the key of snapshots cannot be used; the text says why."""


@dataclass(frozen=True, kw_only=True)
class ServicePlace:
    """A bucket of an object service. Empty fields mean what the environment says."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where snapshots are kept."""

    directory: Path
    """Of this daemon; holds the key, archives that arrive, and the objects if no service does."""
    secret_file: Path | None = None
    """File with the key that seals snapshots, for daemons that share a store."""
    service: ServicePlace | None = None
    reserve_bytes: int = 0
    """Free space of the directory's filesystem that is never used."""
    user_bytes: int = 0
    """Most bytes that a user may have in the store; 0 means no limit."""
    grace_seconds: float = 3600.0


def open_snapshots(place: Place) -> DiskSnapshots:
    """Blocks for a moment. SecretUnusable, SnapshotStoreFailed."""
    place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = read_secret(place.secret_file or place.directory / "key")
    store = StoreSettings(
        secret=secret,
        take_seconds=place.grace_seconds / 2,
        grace_seconds=place.grace_seconds,
        is_shared=place.service is not None,
        user_bytes=place.user_bytes,
    )
    settings = SnapshotSettings(
        store=store,
        unfinished=place.directory / "archives",
        reserve_bytes=place.reserve_bytes,
    )
    return DiskSnapshots(_objects(place), settings)


def read_secret(path: Path) -> bytes:
    """The key in a file, which is made if there is none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _checked(path)
    except OSError as error:
        raise SecretUnusable(f"the key of snapshots cannot be made: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_hex(SECRET_BYTES).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return _checked(path)


def _checked(path: Path) -> bytes:
    try:
        secret = bytes.fromhex(path.read_text("ascii").strip())
    except (OSError, ValueError) as error:
        raise SecretUnusable("the key of snapshots cannot be read, or is not a key") from error
    if len(secret) != SECRET_BYTES:
        raise SecretUnusable(f"the key of snapshots must be {SECRET_BYTES * 2} hexadecimal digits")
    return secret


def _objects(place: Place) -> Objects:
    if place.service is None:
        return DirectoryObjects(place.directory, reserve_bytes=place.reserve_bytes)
    # Only here, so that a daemon with a directory does not load it.
    from sandboxd.snapshots.object_service import ObjectService, ObjectServiceSettings

    found = place.service
    return ObjectService(
        ObjectServiceSettings(
            bucket=found.bucket,
            prefix=found.prefix,
            endpoint=found.endpoint,
            region=found.region or "us-east-1",
            access_key_id=found.access_key_id,
            secret_access_key=found.secret_access_key,
        )
    )
