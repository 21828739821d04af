"""Settings: what they are called, what they mean, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandboxd.config import Config, load


def read(environment: dict[str, str]) -> Config:
    """The settings of this environment and no file."""
    return load(environment=environment, file=Path(os.devnull)).config


def test_defaults_serve_loopback_only() -> None:
    """Without any setting the API is on the unix socket and on 127.0.0.1:5000."""
    config = Config()

    assert (config.host, config.port) == ("127.0.0.1", 5000)
    assert config.api_socket == Path("/run/sandboxd/sandboxd.sock")
    assert config.runtime_dir == Path("/var/lib/sandboxd/runtime/current")
    assert config.default_exec_seconds == 30.0
    assert config.docker_network_mode == "none"
    assert config.command_policy == "open"


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("HOST", "", "host", ""),
        ("PORT", "0", "port", 0),
        ("WORKER_ID", "w1", "worker_id", "w1"),
        ("CONTAINER_IMAGE", "img:1", "container_image", "img:1"),
        ("DOCKER_HOST", "unix:///x.sock", "docker_url", "unix:///x.sock"),
        ("DOCKER_NETWORK_MODE", "none", "docker_network_mode", "none"),
        ("WORKSPACE_DIR", "/work", "workspace_dir", "/work"),
        ("POOL_SIZE", "7", "pool_size", 7),
        ("MIN_POOL_SIZE", "2", "min_pool_size", 2),
        ("MAX_POOL_SIZE", "99", "max_pool_size", 99),
        ("CONTAINER_IDLE_TIMEOUT_MINUTES", "7", "pool_idle_seconds", 420.0),
        ("AGGRESSIVE_CLEANUP", "true", "pool_idle_seconds", 30.0),
        ("CLEANUP_INTERVAL_SECONDS", "9.5", "sweep_interval_seconds", 9.5),
        ("SESSION_TIMEOUT_MINUTES", "1.5", "session_timeout_minutes", 1.5),
        ("MEMORY_LIMIT", "512m", "memory_limit_bytes", 512 << 20),
        ("CPU_QUOTA", "50000", "cpu_quota_us", 50_000),
        ("MAX_WORKSPACE_SIZE_MB", "10", "max_workspace_mb", 10),
        ("MAX_TOTAL_FILES", "64", "max_total_files", 64),
    ],
)
def test_setting_is_read_with_and_without_prefix(
    name: str, value: str, field: str, expected: object
) -> None:
    """Both names work, and the one with the prefix wins."""
    assert getattr(read({name: value}), field) == expected
    assert getattr(read({name: "nonsense", f"SANDBOXD_{name}": value}), field) == expected


def test_policy_that_an_operator_sets_is_known_as_such() -> None:
    """Also the one that a daemon without settings has: it is then no default."""
    assert not read({}).has_chosen_policy
    assert read({"SANDBOXD_COMMAND_POLICY": "open"}).has_chosen_policy


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("STATE_DIR", "/s", "state_dir", Path("/s")),
        ("SOCKET", "/s/a.sock", "api_socket", Path("/s/a.sock")),
        ("GUEST_RUNTIME", "/g", "runtime_dir", Path("/g")),
        ("EXEC_TIMEOUT_SECONDS", "5", "default_exec_seconds", 5.0),
        ("MAX_CALLS", "17", "max_calls", 17),
        ("LOG_LEVEL", "error", "log_level", "error"),
        ("MAX_RUN_OUTPUT", "64k", "max_run_output_bytes", 65536),
        ("COMMAND_POLICY", "strict", "command_policy", "strict"),
    ],
)
def test_own_setting_needs_its_prefix(name: str, value: str, field: str, expected: object) -> None:
    """A common word in the environment does not change the daemon by accident."""
    assert getattr(read({name: value}), field) != expected
    assert getattr(read({f"SANDBOXD_{name}": value}), field) == expected


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("33554432", 32 << 20),
        ("32768k", 32 << 20),
        ("256m", 256 << 20),
        ("256M", 256 << 20),
        ("256mb", 256 << 20),
        (" 1 g ", 1 << 30),
        ("1073741824b", 1 << 30),
    ],
)
def test_size_is_read_as_docker_writes_it(written: str, size: int) -> None:
    """Bytes, or a number with k, m or g."""
    assert read({"MEMORY_LIMIT": written}).memory_limit_bytes == size


@pytest.mark.parametrize("written", ["", "m", "1.5g", "-1m", "256x", "0x10", "256 m b", "1t"])
def test_size_that_is_none_is_refused(written: str) -> None:
    """A size that is not understood is not guessed."""
    with pytest.raises(ValidationError, match="for example 256m"):
        Config.model_validate({"MEMORY_LIMIT": written})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", "127.0.0.1.evil"])
def test_host_beyond_loopback_is_refused(host: str) -> None:
    """Without authentication the API does not open to the network."""
    with pytest.raises(ValidationError, match=r"without authentication.*unix socket"):
        Config(host=host)


def test_http_beyond_loopback_needs_authentication(tmp_path: Path) -> None:
    """As the API does; on loopback and on a unix socket it needs none."""
    for address in ("0.0.0.0:8000", "[::]:8000", "192.168.1.7:8000", "localhost.evil:8000"):
        with pytest.raises(ValidationError, match="without authentication"):
            Config.model_validate({"SANDBOXD_HTTP_ADDRESS": address})
        tokens = {"SANDBOXD_TOKENS_FILE": tmp_path / "tokens"}
        Config.model_validate({"SANDBOXD_HTTP_ADDRESS": address, **tokens})
    for address in ("127.0.0.1:1", "[::1]:8000", "localhost:8000", "unix:/run/x.sock", ""):
        Config.model_validate({"SANDBOXD_HTTP_ADDRESS": address})


@pytest.mark.parametrize("address", ["8000", "host:", "host:x", "unix:x", "::1:80", "a b:1"])
def test_address_of_http_that_is_none_is_refused(address: str) -> None:
    """With what to write instead."""
    with pytest.raises(ValidationError, match="write HOST:PORT"):
        Config.model_validate({"SANDBOXD_HTTP_ADDRESS": address})


def test_console_beyond_loopback_needs_tokens_and_tls(tmp_path: Path) -> None:
    """Either alone is not enough; a console that is off needs neither."""
    tls = {"SANDBOXD_TLS_CERT": tmp_path / "cert", "SANDBOXD_TLS_KEY": tmp_path / "key"}
    tokens = {"SANDBOXD_TOKENS_FILE": tmp_path / "tokens"}
    for given in ({}, tls, tokens):
        with pytest.raises(ValidationError, match="would open the console to the network"):
            Config.model_validate({"SANDBOXD_CONSOLE_HOST": "0.0.0.0", **given})

    Config.model_validate({"SANDBOXD_CONSOLE_HOST": "192.168.1.7", **tls, **tokens})
    Config.model_validate({"SANDBOXD_CONSOLE_HOST": "0.0.0.0", "SANDBOXD_CONSOLE_PORT": 0})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_console_on_every_address_needs_a_name(host: str, tmp_path: Path) -> None:
    """Requests under other names are refused, so without one no browser would get in."""
    files = ("SANDBOXD_TLS_CERT", "SANDBOXD_TLS_KEY", "SANDBOXD_TOKENS_FILE")
    settings = {"SANDBOXD_CONSOLE_HOST": host, **{name: tmp_path / name for name in files}}
    with pytest.raises(ValidationError, match=r"list the names .* in SANDBOXD_CONSOLE_NAMES"):
        Config.model_validate(settings)
    named = Config.model_validate({**settings, "SANDBOXD_CONSOLE_NAMES": " Box.example.org, b "})
    assert named.names_of_console == ["box.example.org", "b"]


@pytest.mark.parametrize(
    "settings",
    [
        {"SANDBOXD_TOKENS_FILE": "/t"},
        {
            "SANDBOXD_TLS_CERT": "/c",
            "SANDBOXD_TLS_KEY": "/k",
            "SANDBOXD_TLS_CLIENT_CA": "/a",
        },
        {"SANDBOXD_ALLOW_NETWORK_ACCESS_WITHOUT_AUTHENTICATION": "true"},
    ],
    ids=["tokens", "client certificates", "on purpose"],
)
def test_host_beyond_loopback_is_for_known_callers(settings: dict[str, str]) -> None:
    """Tokens or client certificates open the network, and so does the flag that says what it is."""
    assert Config.model_validate({"HOST": "0.0.0.0", **settings}).is_on_network


def test_tls_alone_does_not_open_the_network() -> None:
    """It says who the server is, and not who calls."""
    with pytest.raises(ValidationError, match="without authentication"):
        Config(host="0.0.0.0", tls_cert=Path("/c"), tls_key=Path("/k"))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"POOL_SIZE": "81"}, "POOL_SIZE must not exceed MAX_POOL_SIZE"),
        ({"MIN_POOL_SIZE": "81"}, "MIN_POOL_SIZE must not exceed MAX_POOL_SIZE"),
        (
            {"SANDBOXD_UID_COUNT": "81"},
            "SANDBOXD_UID_COUNT must exceed MAX_POOL_SIZE by at least 2",
        ),
        ({"SANDBOXD_UID_START": "0"}, "greater than or equal to 1000"),
        ({"MAX_POOL_SIZE": "0"}, "greater than or equal to 1"),
        ({"POOL_SIZE": "-1"}, "greater than or equal to 0"),
        ({"PORT": "65536"}, "less than or equal to 65535"),
        ({"PORT": "http"}, "valid integer"),
        ({"DOCKER_NETWORK_MODE": "bridge"}, "should match pattern"),
        ({"WORKSPACE_DIR": "relative"}, "should match pattern"),
        ({"WORKSPACE_DIR": "/a:b"}, "should match pattern"),
        ({"MEMORY_LIMIT": "16m"}, "greater than or equal to"),
        ({"SESSION_TIMEOUT_MINUTES": "0"}, "greater than 0"),
        ({"SESSION_TIMEOUT_MINUTES": "inf"}, "finite number"),
        ({"SANDBOXD_LOG_LEVEL": "loud"}, "should match pattern"),
        ({"SANDBOXD_COMMAND_POLICY": "Lax"}, "should match pattern"),
        (
            {"SANDBOXD_COMMAND_POLICY": "lax"},
            "lax is not defined; there are strict, strict-node, open",
        ),
        ({"SANDBOXD_COMMAND_POLICY": "custom"}, "needs SANDBOXD_COMMAND_POLICY_FILE"),
        ({"SANDBOXD_POLICIES": {"open": {}}}, "must not define open again"),
        ({"SANDBOXD_POLICIES": {"Lax": {}}}, "'Lax' is not a valid name"),
        ({"SANDBOXD_ENVIRONMENTS": {"../x": {}}}, "is not a valid name"),
        ({"SANDBOXD_ENVIRONMENTS": {"x": {"image": "a b"}}}, "should match pattern"),
        ({"SANDBOXD_ENVIRONMENTS": {"x": {"image": "a", "dockerfile": "/b"}}}, "not both"),
        ({"SANDBOXD_ENVIRONMENTS": {"x": {"command_policy": "lax"}}}, "x has the command policy"),
        ({"SANDBOXD_TLS_CERT": "/c"}, "SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY need each other"),
        ({"SANDBOXD_TLS_KEY": "/k"}, "SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY need each other"),
        ({"SANDBOXD_TLS_CLIENT_CA": "/a"}, "SANDBOXD_TLS_CLIENT_CA needs SANDBOXD_TLS_CERT"),
        ({"SANDBOXD_SOCKET_AUTH": "token"}, "needs SANDBOXD_TOKENS_FILE"),
        (
            {"SANDBOXD_EXEC_TIMEOUT_SECONDS": "10", "SANDBOXD_MAX_EXEC_TIMEOUT_SECONDS": "5"},
            "SANDBOXD_EXEC_TIMEOUT_SECONDS must not exceed",
        ),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, str], told: str) -> None:
    """A contradiction is told at the start and not at the first session."""
    with pytest.raises(ValidationError, match=told):
        Config.model_validate(settings)


def test_workspace_in_memory_takes_at_most_a_quarter_of_it() -> None:
    """A full workspace in memory leaves memory for commands; one on a disk has its full size."""
    large = Config(memory_limit_bytes=64 << 20, max_workspace_mb=500)
    small = Config(memory_limit_bytes=1 << 30, max_workspace_mb=10)

    assert large.workspace_bytes == 500 << 20
    assert large.with_workspace_in_memory().workspace_bytes == 16 << 20
    assert small.with_workspace_in_memory().workspace_bytes == 10 << 20


def test_setting_that_is_not_there_is_refused() -> None:
    """A misspelt name in code is an error and not a setting that does nothing."""
    with pytest.raises(ValidationError, match="pol_size"):
        Config(pol_size=1)  # type: ignore[call-arg]


def test_settings_do_not_change() -> None:
    """What was read at the start holds."""
    with pytest.raises(ValidationError, match="frozen"):
        Config().port = 1
