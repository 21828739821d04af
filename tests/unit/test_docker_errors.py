from __future__ import annotations

import asyncio
import errno
import json

import aiohttp
import pytest
from aiodocker import DockerError

from sandboxd.engine import docker_errors
from sandboxd.errors import EngineFailed, EngineUnreachable, ImageNotFound, SandboxdError

HOST_PATH = "/var/lib/docker/overlay2/8c1f/merged"
CONTAINER = "4e5c0ffee1"
RAW_TEXT = f"No such image or container {CONTAINER}: mount {HOST_PATH}: device or resource busy"
ALLOWED = (EngineUnreachable, EngineFailed, ImageNotFound)


def a_connector_error(number: int) -> aiohttp.ClientConnectorError:
    key = aiohttp.client_reqrep.ConnectionKey("localhost", None, False, True, None, None, None)
    return aiohttp.ClientConnectorError(key, OSError(number, RAW_TEXT))


def every_kind_of_error() -> list[Exception]:
    return [
        *(DockerError(status, RAW_TEXT) for status in range(1000)),
        a_connector_error(errno.ENOENT),
        a_connector_error(errno.EACCES),
        aiohttp.ClientPayloadError(RAW_TEXT),
        aiohttp.ServerDisconnectedError(RAW_TEXT),
        aiohttp.ServerTimeoutError(RAW_TEXT),
        aiohttp.InvalidURL(HOST_PATH),
        aiohttp.ClientError(RAW_TEXT),
        TimeoutError(RAW_TEXT),
        TimeoutError(errno.ETIMEDOUT, RAW_TEXT),
        ConnectionResetError(errno.ECONNRESET, RAW_TEXT),
        PermissionError(errno.EACCES, RAW_TEXT, HOST_PATH),
        FileNotFoundError(errno.ENOENT, RAW_TEXT, HOST_PATH),
        json.JSONDecodeError(RAW_TEXT, HOST_PATH, 0),
        KeyError(RAW_TEXT),
        TypeError(RAW_TEXT),
        RuntimeError(RAW_TEXT),
    ]


@pytest.mark.parametrize("image", [None, "tools:1"])
def test_every_error_becomes_one_of_the_contract(image: str | None) -> None:
    """Whatever aiodocker, aiohttp or the socket raise, the contract's errors come out."""
    for error in every_kind_of_error():
        told = docker_errors.engine_error(error, doing="start a sandbox", image=image)

        assert isinstance(told, ALLOWED), error


@pytest.mark.parametrize("image", [None, "tools:1"])
def test_no_message_repeats_what_the_engine_said(image: str | None) -> None:
    """A caller learns no host path, no container and none of the engine's own text."""
    for error in every_kind_of_error():
        told = docker_errors.engine_error(
            error, doing="start a sandbox", within_seconds=30.0, image=image
        )
        everything_told = f"{told} {told.message} {told.metadata}"

        for secret in (HOST_PATH, CONTAINER, "overlay2", "device or resource busy", "localhost"):
            assert secret not in everything_told, error


def test_every_message_is_one_sentence() -> None:
    """A message is a single sentence on a single line."""
    for error in every_kind_of_error():
        message = docker_errors.engine_error(error, doing="start a sandbox").message

        assert message.endswith("."), message
        assert ". " not in message
        assert "\n" not in message


@pytest.mark.parametrize("status", [900, 502, 503, 504])
def test_engine_without_answer_is_unreachable(status: int) -> None:
    """No connection and a gateway's excuse both mean: the engine is away, try again soon."""
    told = docker_errors.engine_error(DockerError(status, RAW_TEXT), doing="start a sandbox")

    assert isinstance(told, EngineUnreachable)
    assert told.retry_after_seconds == docker_errors.RETRY_AFTER_SECONDS


@pytest.mark.parametrize("status", [0, 400, 401, 403, 404, 406, 409, 500, 501])
def test_engine_that_answers_with_a_failure_has_failed(status: int) -> None:
    """A status from the engine itself is never mistaken for an absent engine."""
    told = docker_errors.engine_error(DockerError(status, RAW_TEXT), doing="start a sandbox")

    assert isinstance(told, EngineFailed)
    assert "start a sandbox" in told.message


def test_missing_image_is_told_by_the_name_that_was_asked_for() -> None:
    """A 404 about an image names the image of the request, not the engine's spelling of it."""
    told = docker_errors.engine_error(
        DockerError(404, "No such image: sha256:99"), doing="create a sandbox", image="tools:1"
    )

    assert isinstance(told, ImageNotFound)
    assert told.metadata == {"image": "tools:1"}


def test_missing_network_is_no_missing_image() -> None:
    """A create that misses something else does not send the caller to build an image."""
    told = docker_errors.engine_error(
        DockerError(404, "network lab not found"), doing="create a sandbox", image="tools:1"
    )

    assert isinstance(told, EngineFailed)


def test_late_answer_names_the_limit() -> None:
    """A deadline that passed is told with its length."""
    told = docker_errors.engine_error(TimeoutError(), doing="remove a sandbox", within_seconds=20.0)

    assert isinstance(told, EngineFailed)
    assert "did not answer within 20 s when asked to remove a sandbox" in told.message


def test_forbidden_socket_is_told_apart_through_aiodocker() -> None:
    """A daemon without access to the socket says so, although aiodocker hides the reason."""

    def refuse() -> None:
        try:
            raise a_connector_error(errno.EACCES)
        except aiohttp.ClientConnectionError:
            raise DockerError(900, RAW_TEXT)  # noqa: B904 (as aiodocker does)

    with (
        pytest.raises(EngineUnreachable, match="group of the socket"),
        docker_errors.translated("start a sandbox"),
    ):
        refuse()


def test_translated_keeps_the_cause_for_the_log() -> None:
    """What the engine really said is still there for the operator."""
    cause = DockerError(500, RAW_TEXT)

    with pytest.raises(EngineFailed) as caught, docker_errors.translated("start a sandbox"):
        raise cause

    assert caught.value.__cause__ is cause


def test_translated_lets_our_own_errors_pass() -> None:
    """An error that already has its meaning keeps it."""
    ours = SandboxdError("as it was")

    with pytest.raises(SandboxdError) as caught, docker_errors.translated("start a sandbox"):
        raise ours

    assert caught.value is ours


def test_translated_never_swallows_a_cancellation() -> None:
    """Cancelling a call is not a failure of the engine."""
    with pytest.raises(asyncio.CancelledError), docker_errors.translated("start a sandbox"):
        raise asyncio.CancelledError


def test_failed_build_step_is_told_on_one_bounded_line() -> None:
    """A build error shows the step and the problem, however long or wild its text is."""
    told = docker_errors.build_failed(
        step="Step 2/3 : RUN make", problem="it broke\n\x1b[31mhere " + "x" * 100_000
    )

    assert "at 'Step 2/3 : RUN make': it broke" in told.message
    assert told.message.isprintable()
    assert len(told.message) < 1300


def test_refused_build_tells_the_reason() -> None:
    """A Dockerfile the engine cannot use is explained, not blamed on the engine."""
    with (
        pytest.raises(EngineFailed, match="unknown instruction: FORM"),
        docker_errors.build_refusals(),
    ):
        raise DockerError(400, "dockerfile parse error line 1: unknown instruction: FORM")


def test_unreachable_engine_is_no_refused_build() -> None:
    """A build without an engine is reported as an unreachable engine."""
    with (
        pytest.raises(EngineUnreachable),
        docker_errors.translated("build an image"),
        docker_errors.build_refusals(),
    ):
        raise DockerError(900, RAW_TEXT)
