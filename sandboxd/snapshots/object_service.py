"""Objects in a service that speaks the protocol of S3.

Encryption at rest, replication and access to the bucket are the service's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from obstore import exceptions
from obstore.store import S3Store

from sandboxd.errors import SnapshotStoreFailed
from sandboxd.snapshots.objects import Calls, ObjectExists, ObjectInfo, ObjectMissing

T = TypeVar("T")

_TRIES = 4
_FIRST_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class ObjectServiceSettings:
    """Where the objects are."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    """Address of the service; empty for that of Amazon."""
    region: str = "us-east-1"
    access_key_id: str = ""
    """Empty means that the environment or the machine has the credentials."""
    secret_access_key: str = ""
    call_seconds: float = 30.0
    """Time limit of one try."""


class ObjectService:
    """See objects.Objects. Calls that failed are repeated a few times, with pauses."""

    def __init__(self, settings: ObjectServiceSettings) -> None:
        self.calls = Calls()
        self._has_create = True
        options: dict[str, object] = {"region": settings.region}
        if settings.endpoint:
            options["endpoint"] = settings.endpoint
            options["virtual_hosted_style_request"] = False
        if settings.access_key_id:
            options["access_key_id"] = settings.access_key_id
            options["secret_access_key"] = settings.secret_access_key
        seconds = timedelta(seconds=settings.call_seconds)
        self._store = S3Store(
            settings.bucket,
            prefix=settings.prefix or None,
            client_options={
                "allow_http": settings.endpoint.startswith("http://"),
                "timeout": seconds,
                "connect_timeout": timedelta(seconds=min(5.0, settings.call_seconds)),
            },
            # Repeated here, where it is counted.
            retry_config={"max_retries": 0, "retry_timeout": seconds},
            **options,  # type: ignore[arg-type]
        )

    def put(self, key: str, data: bytes, *, is_durable: bool = True) -> None:
        """A service stores durably or not as it is set up."""
        with _needing_a_bucket():
            self._call(lambda: self._store.put(key, data, use_multipart=False))

    def create(self, key: str, data: bytes, *, is_durable: bool = True) -> None:
        if not self._has_create:
            self._create_without_condition(key, data)
            return
        tries = 0

        def create() -> None:
            nonlocal tries
            tries += 1
            self._store.put(key, data, use_multipart=False, mode="create")

        try:
            with _needing_a_bucket():
                self._call(create)
        except exceptions.AlreadyExistsError:
            # A try whose answer was lost may have stored it.
            if tries == 1 or self.get(key) != data:
                raise ObjectExists(key) from None
        except (exceptions.NotSupportedError, NotImplementedError):
            self._has_create = False
            self._create_without_condition(key, data)

    def get(self, key: str) -> bytes:
        return self._call(lambda: bytes(self._store.get(key).bytes()))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._call(lambda: bytes(self._store.get_range(key, start=offset, length=length)))

    def has(self, key: str) -> bool:
        try:
            self._call(lambda: self._store.head(key))
        except ObjectMissing:
            return False
        return True

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with _needing_a_bucket():
            found = self._call(lambda: self._store.list(prefix or None).collect())
        return iter([ObjectInfo(meta["path"], meta["size"]) for meta in found])

    def delete(self, key: str) -> None:
        try:
            self._call(lambda: self._store.delete(key))
        except ObjectMissing:
            pass

    def _create_without_condition(self, key: str, data: bytes) -> None:
        """For services that cannot: only one process adds to a line then."""
        if self.has(key):
            raise ObjectExists(key)
        self.put(key, data)

    def _call(self, work: Callable[[], T]) -> T:
        pause = _FIRST_PAUSE_SECONDS
        for left in reversed(range(_TRIES)):
            self.calls.made += 1
            try:
                return work()
            except (exceptions.NotFoundError, FileNotFoundError) as error:
                raise ObjectMissing from error
            except _REFUSED:
                raise
            except exceptions.BaseError as error:
                if not left or isinstance(error, _FINAL):
                    raise SnapshotStoreFailed(_reason(error)) from error
            except OSError as error:
                if not left:
                    raise SnapshotStoreFailed(_reason(error)) from error
            self.calls.repeated += 1
            time.sleep(pause)
            pause *= 4
        raise AssertionError("the last try returns or raises")


_REFUSED = (exceptions.AlreadyExistsError, exceptions.NotSupportedError)
_FINAL = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)


@contextmanager
def _needing_a_bucket() -> Iterator[None]:
    """Where nothing is asked for, only the bucket can be missing."""
    try:
        yield
    except ObjectMissing as error:
        raise SnapshotStoreFailed("the object service does not have this bucket") from error


def _reason(error: Exception) -> str:
    """What kind of failure it is; the text of the service may name keys and addresses."""
    if isinstance(error, _FINAL):
        return "the object service refuses the daemon's credentials"
    return "the object service does not answer, or fails"
