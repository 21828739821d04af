"""Translates what aiodocker, aiohttp and the socket raise into `sandboxd.errors`.

The messages reach API callers, so they do not repeat the text of the engine: it names host paths
and containers. The log has it as the `__cause__` of the error.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiodocker import DockerError

from sandboxd.errors import EngineFailed, EngineUnreachable, ImageNotFound, SandboxdError
from sandboxd.lost_connections import closed_as_lost

RETRY_AFTER_SECONDS = 2.0

_NO_CONNECTION = 900
"""aiodocker's own number for a request that got no answer at all."""
_GATEWAY_STATUSES = frozenset({502, 503, 504})
_CAPPED_TEXT_LENGTH = 600


@contextmanager
def translated(
    doing: str, *, within_seconds: float | None = None, image: str | None = None
) -> Iterator[None]:
    """Let nothing but errors of `sandboxd.errors` out of the block.

    `doing` completes the sentence "the engine was asked to ...".
    """
    try:
        with closed_as_lost():
            yield
    except SandboxdError:
        raise
    except Exception as error:
        raise engine_error(
            error, doing=doing, within_seconds=within_seconds, image=image
        ) from error


def engine_error(
    error: Exception,
    *,
    doing: str,
    within_seconds: float | None = None,
    image: str | None = None,
) -> SandboxdError:
    """The error for the caller. `image` is the image that the request named, if any."""
    if isinstance(error, DockerError):
        return _by_status(error, doing=doing, image=image)
    # TimeoutError is an OSError: the order of these two matters.
    if isinstance(error, TimeoutError):
        return _no_answer_in_time(doing, within_seconds)
    if isinstance(error, (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)):
        return _unreachable(error)
    return EngineFailed(
        f"The container engine gave an unexpected answer when asked to {doing}; check that the "
        "daemon is connected to a supported Docker Engine."
    )


def connection_closed() -> EngineUnreachable:
    """For a call after `aclose`."""
    return EngineUnreachable(
        "The daemon is shutting down and no longer uses the container engine; try again once it "
        "has restarted.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def build_failed(*, step: str, problem: str) -> EngineFailed:
    """A build step failed. Only here the engine's text, shortened, is passed on.

    The caller wrote the step and cannot fix it without the text.
    """
    place = f" at {one_line(step)!r}" if step else ""
    return EngineFailed(f"The image build failed{place}: {one_line(problem)}")


@contextmanager
def build_refusals() -> Iterator[None]:
    """Report why the engine refused to begin a build, such as a Dockerfile it cannot parse."""
    try:
        yield
    except DockerError as error:
        if error.status == _NO_CONNECTION or error.status in _GATEWAY_STATUSES:
            raise
        raise build_failed(step="", problem=error.message) from error


def unreadable_build_context() -> EngineFailed:
    return EngineFailed(
        "The build context cannot be read; check that it exists and is readable by the daemon."
    )


def is_missing(error: DockerError) -> bool:
    return bool(error.status == 404)


def is_removal_in_progress(error: DockerError) -> bool:
    return bool(error.status == 409 and "already in progress" in error.message)


def _by_status(error: DockerError, *, doing: str, image: str | None) -> SandboxdError:
    status = error.status
    if status == _NO_CONNECTION or status in _GATEWAY_STATUSES:
        return _unreachable(error)
    if status == 404:
        return _missing(error, doing=doing, image=image)
    if status == 409:
        return EngineFailed(
            f"The container engine could not {doing} because of a conflicting request; try again."
        )
    if status in (401, 403):
        return EngineFailed(
            f"The container engine does not permit the daemon to {doing}; an operator has to grant "
            "it access."
        )
    if 400 <= status < 500:
        return EngineFailed(
            f"The container engine refused to {doing}; an operator has to check the daemon's "
            "settings against the reason in its log."
        )
    return EngineFailed(
        f"The container engine failed to {doing}; try again, and check the daemon's log if it "
        "happens again."
    )


def _missing(error: DockerError, *, doing: str, image: str | None) -> SandboxdError:
    # A create may also miss something else the settings name, such as a network.
    if image is not None and "image" in error.message.lower():
        return ImageNotFound(image)
    return EngineFailed(
        f"The container engine could not {doing} because something it needs is gone; try again "
        "with a new session."
    )


def _no_answer_in_time(doing: str, within_seconds: float | None) -> EngineFailed:
    limit = "in time" if within_seconds is None else f"within {within_seconds:g} s"
    return EngineFailed(
        f"The container engine did not answer {limit} when asked to {doing}; try again, and check "
        "the load of the daemon's host if it happens again."
    )


def _unreachable(error: Exception) -> EngineUnreachable:
    if _is_permission_problem(error):
        message = (
            "The daemon may not use the container engine's socket; an operator has to add the "
            "daemon's user to the group of the socket."
        )
    else:
        message = (
            "The container engine does not answer; try again in a few seconds, and check that "
            "Docker runs on the daemon's host if it happens again."
        )
    return EngineUnreachable(message, retry_after_seconds=RETRY_AFTER_SECONDS)


def _is_permission_problem(error: BaseException | None) -> bool:
    # aiodocker keeps the socket's own error only as the context of its DockerError.
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
            return True
        error = error.__context__
    return False


def one_line(text: str) -> str:
    """Text of the engine as one printable line, shortened."""
    line = " ".join(text.split())
    printable = "".join(character for character in line if character.isprintable())
    if len(printable) <= _CAPPED_TEXT_LENGTH:
        return printable
    return printable[: _CAPPED_TEXT_LENGTH - 3] + "..."
